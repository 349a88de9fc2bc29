# SPDX-License-Identifier: Apache-2.0
"""Figures: what was measured, under a name that stays, with all its repetitions."""
import statistics
from dataclasses import dataclass, field


class Skip(Exception):
    """Something is missing here, and the figures that need it are left out. The message says what."""


@dataclass
class Figure:
    """GROUP/..., its unit, and a sample per repetition. `notes` are numbers that belong to it (admitted, bytes a key)."""

    name: str
    unit: str
    samples: list = field(default_factory=list)
    notes: dict = field(default_factory=dict)

    def median(self):
        return statistics.median(self.samples)


class Figures:
    """Figures by name, in the order in which they came."""

    def __init__(self):
        self.by_name = {}
        self.left_out = []  # what is not among them, and why

    def add(self, name, unit, *samples, **notes):
        figure = self.by_name.setdefault(name, Figure(name, unit))
        figure.samples.extend(samples)
        figure.notes.update(notes)

    def read_lines(self, text):
        """Takes in lines of "NAME VALUE UNIT"; others are not looked at."""
        for line in text.splitlines():
            words = line.split()
            if len(words) == 3 and "/" in words[0]:
                self.add(words[0], words[2], float(words[1]))

    def starting(self, prefix):
        return [figure for name, figure in self.by_name.items() if name.startswith(prefix)]

    def get(self, name):
        return self.by_name.get(name)


def ratio(figure, base, paired):
    """Of the medians; where repetition i of both was measured side by side (`paired`), the median of their ratios."""
    if paired and len(figure.samples) == len(base.samples) and all(base.samples):
        return statistics.median(a / b for a, b in zip(figure.samples, base.samples))
    return figure.median() / base.median() if base.median() else None
