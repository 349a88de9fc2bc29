# SPDX-License-Identifier: Apache-2.0
"""A program on a terminal of its own, and what the terminal then shows: a VT100 as far as ncurses uses one."""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

from command_support import PLACE, PLAIN, Skipped

SEQUENCE = re.compile(rb"\x1b(?:\[([?\d;]*)([A-Za-z])|[()][A-Za-z0-9]|([=>78DEM]))")


class Screen:
    def __init__(self, *words, rows=24, columns=80, environment=None):
        try:
            self.main, self.end = pty.openpty()
        except OSError as error:
            raise Skipped(f"there is no terminal here: {error}") from error
        self.set_size(rows, columns)
        self.before = termios.tcgetattr(self.end)
        self.pending = self.all = b""
        self.child = subprocess.Popen([*map(os.fspath, words)], stdin=self.end, stdout=self.end, stderr=subprocess.PIPE,
                                      cwd=PLACE, env={**PLAIN, "TERM": "vt100", **(environment or {})}, start_new_session=True)

    def set_size(self, rows, columns):
        self.rows, self.columns = rows, columns
        self.cells = [[" "] * columns for _ in range(rows)]
        self.row = self.column = 0
        self.region, self.saved = (0, rows - 1), (0, 0)
        fcntl.ioctl(self.end, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def resize(self, rows, columns):
        """The window has another size; what was on the screen is gone until the program draws anew."""
        self.read()
        self.set_size(rows, columns)
        self.child.send_signal(signal.SIGWINCH)

    def read(self, seconds=0.0):
        """Takes in what the program has written."""
        while select.select([self.main], [], [], seconds)[0]:
            try:
                more = os.read(self.main, 65536)
            except OSError:
                return
            if not more:
                return
            self.all += more
            self.pending += more
            self.draw()
            seconds = 0

    def draw(self):
        while self.pending:
            if self.pending[0] == 0x1b:
                match = SEQUENCE.match(self.pending)
                if match is None:
                    if len(self.pending) > 32:
                        raise AssertionError(f"an unknown sequence: {self.pending[:32]}")
                    return
                self.pending = self.pending[match.end():]
                if match[2]:
                    self.control(match[1].decode(), match[2].decode())
                elif match[3]:
                    self.escape(match[3].decode())
            else:
                byte, self.pending = self.pending[0], self.pending[1:]
                self.put(byte)

    def put(self, byte):
        if byte == 13:
            self.column = 0
        elif byte == 10:
            self.escape("D")
        elif byte == 8:
            self.column = max(self.column - 1, 0)
        elif byte == 9:
            self.column = min(self.column // 8 * 8 + 8, self.columns - 1)
        elif byte >= 32:
            if self.column < self.columns:
                self.cells[self.row][self.column] = chr(byte)
            self.column += 1

    def escape(self, letter):
        """Down or up a line, at the ends of the scrolling region by scrolling it; the cursor kept and put back."""
        first, last = self.region
        if letter in "DE" and self.row == last:
            self.cells[first:last + 1] = [*self.cells[first + 1:last + 1], [" "] * self.columns]
        elif letter in "DE":
            self.row = min(self.row + 1, self.rows - 1)
        elif letter == "M" and self.row == first:
            self.cells[first:last + 1] = [[" "] * self.columns, *self.cells[first:last]]
        elif letter == "M":
            self.row = max(self.row - 1, 0)
        elif letter == "7":
            self.saved = (self.row, self.column)
        elif letter == "8":
            self.row, self.column = self.saved

    def control(self, numbers, letter):
        values = [int(part) if part.isdigit() else 0 for part in numbers.split(";")]
        count = max(values[0], 1)
        if letter in "Hf":
            self.row = min(count, self.rows) - 1
            self.column = min(max(values[1], 1) if len(values) > 1 else 1, self.columns) - 1
        elif letter in "ABCD":
            self.row = min(max(self.row + {"A": -count, "B": count}.get(letter, 0), 0), self.rows - 1)
            self.column = min(max(self.column + {"C": count, "D": -count}.get(letter, 0), 0), self.columns - 1)
        elif letter == "r":
            bottom = values[1] if len(values) > 1 and values[1] else self.rows
            self.region, self.row, self.column = (count - 1, min(bottom, self.rows) - 1), 0, 0
        elif letter == "K":
            span = {0: range(self.column, self.columns), 1: range(self.column + 1), 2: range(self.columns)}[values[0]]
            for column in span:
                if column < self.columns:
                    self.cells[self.row][column] = " "
        elif letter == "J":
            at = self.row * self.columns + self.column
            span = {0: range(at, self.rows * self.columns), 1: range(at + 1), 2: range(self.rows * self.columns)}[values[0]]
            for cell in span:
                if cell < self.rows * self.columns:
                    self.cells[cell // self.columns][cell % self.columns] = " "
        elif letter not in "mhl":
            raise AssertionError(f"an unknown sequence: {numbers}{letter}")

    def lines(self):
        self.read()
        return ["".join(row).rstrip() for row in self.cells]

    def text(self):
        return "\n".join(self.lines())

    def press(self, keys):
        os.write(self.main, keys.encode())

    def until(self, condition, seconds=60):
        """Waits until a text is on the screen, or a condition holds."""
        is_there = condition if callable(condition) else lambda: condition in self.text()
        end = time.monotonic() + seconds
        while not (result := is_there()):
            assert time.monotonic() < end, "the screen shows:\n" + self.text()
            self.read(0.1)
        return result

    def ended(self, seconds=60):
        """Waits for the end: (exit code, whether the terminal is as it was, standard error)."""
        end = time.monotonic() + seconds
        while self.child.poll() is None:
            assert time.monotonic() < end, "it does not end; the screen shows:\n" + self.text()
            self.read(0.05)
        self.read()
        return self.child.returncode, termios.tcgetattr(self.end) == self.before, self.child.stderr.read().decode()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.child.poll() is None:
            self.child.kill()
            self.child.wait()
        self.child.stderr.close()
        os.close(self.main)
        os.close(self.end)
