"""A headless Chromium, driven over its DevTools pipe with nothing but the standard library."""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = [
    "--remote-debugging-pipe",
    "--headless",
    "--no-sandbox",
    "--no-first-run",
    "--hide-scrollbars",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
# The browser reads from descriptor 3 and writes to 4, whatever numbers our pipes have.
LAUNCH = """
import fcntl, os, sys
read, write = (fcntl.fcntl(int(n), fcntl.F_DUPFD, 10) for n in sys.argv[1:3])
os.dup2(read, 3)
os.dup2(write, 4)
os.execvp(sys.argv[3], sys.argv[3:])
"""


def find_browser():
    return next((path for path in map(shutil.which, NAMES) if path), None)


@dataclass
class Seen:
    """What a page did while it was open."""

    complaints: list[str] = field(default_factory=list)
    """Console errors and warnings, exceptions, failed requests, and what the browser itself logged."""
    requests: list[str] = field(default_factory=list)
    """Addresses asked for, the page's own first."""
    values: list = field(default_factory=list)
    """What the expressions gave."""


class Browser:
    """Use as a context; every page is opened in a fresh tab."""

    def __enter__(self):
        self._folder = tempfile.mkdtemp(prefix="polyarch-browser-")
        to_browser, from_us = os.pipe()
        to_us, from_browser = os.pipe()
        command = [sys.executable, "-c", LAUNCH, str(to_browser), str(from_browser), find_browser(), *FLAGS]
        self._process = subprocess.Popen(
            [*command, f"--user-data-dir={self._folder}", "about:blank"],
            pass_fds=(to_browser, from_browser),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._write, self._read = from_us, to_us
        self._rest, self._number, self._events = b"", 0, []
        return self

    def __exit__(self, *_):
        with suppress(OSError, TimeoutError):
            self._call("Browser.close", None, seconds=3)
        os.close(self._write)
        os.close(self._read)
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)  # its own session: nothing else is in there
            self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def open(self, page: Path, *expressions: str, width: int = 1100, dark: bool = False, media: str = "screen") -> Seen:
        """Opens a page, lets it settle, and evaluates expressions in it."""
        target = self._call("Target.createTarget", None, url="about:blank")["targetId"]
        tab = self._call("Target.attachToTarget", None, targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable", tab)
        self._call(
            "Emulation.setDeviceMetricsOverride",
            tab,
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", tab, media=media, features=[scheme])
        self._events.clear()
        self._call("Page.navigate", tab, url=page.as_uri())
        self._wait_for("Page.loadEventFired")
        seen = Seen()
        # Two frames and a moment: late requests and errors have been reported by then.
        settle = "new Promise(r => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(r, 200))))"
        for expression in (settle, *expressions):
            answer = self._call("Runtime.evaluate", tab, expression=expression, awaitPromise=True, returnByValue=True)
            assert "exceptionDetails" not in answer, answer
            seen.values.append(answer["result"].get("value"))
        del seen.values[0]
        for event in self._events:
            _note(event, seen)
        self._call("Target.closeTarget", None, targetId=target)
        return seen

    def _wait_for(self, method, seconds=20):
        end = time.monotonic() + seconds
        while not any(event["method"] == method for event in self._events):
            self._take(end)

    def _call(self, method, tab, seconds=20, **parameters):
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if tab:
            message["sessionId"] = tab
        os.write(self._write, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + seconds
        while True:
            answer = self._take(end)
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def _take(self, end):
        """The next message; events are kept."""
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._read], [], [], max(0, end - time.monotonic()))
            if not ready:
                raise TimeoutError("the browser does not answer")
            part = os.read(self._read, 1 << 16)
            if not part:
                raise OSError("the browser has gone")
            self._rest += part
        text, _, self._rest = self._rest.partition(b"\0")
        message = json.loads(text)
        if "method" in message:
            self._events.append(message)
        return message


def _note(event, seen):
    what, told = event["method"], event["params"]
    if what == "Network.requestWillBeSent":
        seen.requests.append(told["request"]["url"])
    elif what == "Network.loadingFailed":
        seen.complaints.append(told["errorText"])
    elif what == "Runtime.exceptionThrown":
        seen.complaints.append(json.dumps(told["exceptionDetails"]))
    elif what == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning", "assert"):
        seen.complaints.append(json.dumps(told["args"]))
    elif what == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
        seen.complaints.append(told["entry"]["text"])
