# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium, driven by the WebDriver protocol, for the tests of the status page."""
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

from support import gateway_demo, Skipped

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the name that the protocol gives a reference to an element
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--window-size=1280,1500")


class Browser:
    """Skips where there is no Chromium; on CI that is a failure."""

    def __init__(self, *flags):
        if CHROMIUM is None or DRIVER is None:
            why = "there is no Chromium with its driver"
            if os.environ.get("CI") == "true":
                raise AssertionError(why + "; scripts/setup installs both")
            raise Skipped(why)
        self.profile = tempfile.TemporaryDirectory(prefix="weir-browser-", ignore_cleanup_errors=True)
        port = gateway_demo.free_port(socket.SOCK_STREAM)
        self.at = f"http://127.0.0.1:{port}"
        self.session = None
        self.driver = subprocess.Popen([DRIVER, f"--port={port}", "--silent"], stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            self.until(self.is_up)
            self.session = self.ask("POST", "/session", {"capabilities": {"alwaysMatch": {
                "goog:loggingPrefs": {"browser": "ALL"},
                "goog:chromeOptions": {"binary": CHROMIUM,
                                       "args": [*FLAGS, f"--user-data-dir={self.profile.name}", *flags]}}}})["sessionId"]
        except BaseException:
            self.close()
            raise

    def is_up(self):
        try:
            return self.ask("GET", "/status")["ready"]
        except OSError:
            return False

    def ask(self, method, path, body=None):
        """The value of the answer to a command."""
        path = path if self.session is None else f"/session/{self.session}{path}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.at + path, data=data, method=method)
        try:
            with urllib.request.urlopen(request, timeout=90) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{method} {path}: {error.read().decode()}") from error

    def open(self, url):
        self.ask("POST", "/url", {"url": url})

    def run(self, script, *arguments):
        """What a function with this body returns."""
        return self.ask("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def text(self, selector):
        return self.run("const e = document.querySelector(arguments[0]); return e && e.textContent", selector)

    def press(self, *keys):
        """Presses and releases keys, one by one, wherever the focus is."""
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self.ask("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def emulate(self, **features):
        """Media features, such as prefers_color_scheme="dark"."""
        self.devtools("Emulation.setEmulatedMedia", features=[
            {"name": name.replace("_", "-"), "value": value} for name, value in features.items()])

    def devtools(self, command, **parameters):
        return self.ask("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def log(self):
        """What the page and the browser wrote to the console since the last call."""
        return [line["message"] for line in self.ask("POST", "/se/log", {"type": "browser"})]

    def screenshot(self):
        return self.ask("GET", "/screenshot")

    def until(self, condition, seconds=60):
        end = time.monotonic() + seconds
        while not (result := condition()):
            assert time.monotonic() < end, "waited in vain"
            time.sleep(0.05)
        return result

    def close(self):
        try:
            if self.session is not None:
                self.ask("DELETE", "")
        except (AssertionError, OSError):
            pass  # it is killed below
        self.driver.kill()
        self.driver.wait()
        self.profile.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
