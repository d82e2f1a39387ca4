"""Chromium without a window, driven over its DevTools protocol by the websockets library."""

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from websockets.sync.client import ClientConnection, connect

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--mute-audio",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--remote-debugging-port=0",
)
_STARTED = 30.0
_ANSWERED = 30.0


def chromium() -> str | None:
    """The browser's program, None where there is none."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


def install() -> int:
    """Install Chromium by apt where it is missing; the exit code, 1 where that cannot be done."""
    if chromium() is not None:
        return 0
    problem = "Chromium is needed for the browser tests, and is not installed"
    if shutil.which("apt-get") is None:
        print(f"{problem}; install it with this system's packages", file=sys.stderr)
        return 1
    sudo = [] if os.geteuid() == 0 else ["sudo", "-n"]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    print("installing Chromium", file=sys.stderr)
    try:
        for command in (["update", "-qq"], ["install", "-y", "-qq", "chromium"]):
            subprocess.run([*sudo, "apt-get", *command], check=True, env=environment, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"{problem}: {error}; try: sudo apt-get install chromium", file=sys.stderr)
        return 1
    return 0


class Target:
    """What understands the protocol: the browser, or one of its pages."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._number = 0

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Do a command of the protocol, and give its answer."""
        self._number += 1
        self._connection.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._connection.recv(timeout=_ANSWERED))
            if message.get("id") == self._number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                result: dict[str, Any] = message["result"]
                return result
            self._note(message)

    def _note(self, message: dict[str, Any]) -> None:
        """Take an event in."""


class Page(Target):
    """One page. `problems` are errors that it logged, those of its security policy too."""

    def __init__(self, connection: ClientConnection) -> None:
        super().__init__(connection)
        self.problems: list[str] = []
        for domain in ("Page", "Runtime", "Log"):
            self.send(f"{domain}.enable")

    def _note(self, message: dict[str, Any]) -> None:
        given = message.get("params", {})
        match message.get("method"):
            case "Runtime.exceptionThrown":
                details = given["exceptionDetails"]
                self.problems.append(details.get("exception", {}).get("description") or details["text"])
            case "Runtime.consoleAPICalled" if given["type"] == "error":
                said = [str(part.get("description", part.get("value"))) for part in given["args"]]
                self.problems.append(" ".join(said))
            case "Log.entryAdded" if given["entry"]["level"] == "error":
                self.problems.append(f"{given['entry']['text']} {given['entry'].get('url', '')}")

    def show(self, width: int, height: int, *, dark: bool, density: float = 1.0) -> None:
        """Set the size of the window and the system's colour scheme."""
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=density,
            mobile=width < 500,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])

    def go(self, url: str) -> None:
        """Load a page and wait until the monitor runs in it."""
        self.send("Page.navigate", url=url)
        self.until("window.orderbook !== undefined")

    def evaluate(self, script: str) -> Any:
        """The value of a JavaScript expression; a promise is awaited."""
        answer = self.send(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True, userGesture=True
        )
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise RuntimeError(details.get("exception", {}).get("description") or details["text"])
        return answer["result"].get("value")

    def until(self, script: str, seconds: float = 30.0, pause: float = 0.05) -> Any:
        """Wait until an expression is true, and give its value."""
        return until(lambda: self.evaluate(script), seconds, pause, script)

    def click(self, name: str) -> None:
        """Click the element with this `data-testid`."""
        self.evaluate(f"({element(name)}).click()")

    def fill(self, name: str, text: str) -> None:
        """Put text into the field with this `data-testid`."""
        self.evaluate(
            f"(field => {{ field.focus(); field.value = {json.dumps(text)};"
            f" field.dispatchEvent(new Event('input', {{bubbles: true}})); }})({element(name)})"
        )

    def press(self, key: str) -> None:
        """Press and release a key."""
        for kind in ("keyDown", "keyUp"):
            text = key if kind == "keyDown" and len(key) == 1 else ""
            self.send("Input.dispatchKeyEvent", type=kind, key=key, text=text)

    def picture(self, path: Path) -> None:
        """Save what is seen as PNG."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(self.send("Page.captureScreenshot", format="png")["data"]))


def element(name: str) -> str:
    """The expression of the element with this `data-testid`."""
    return f"document.querySelector('[data-testid=\"{name}\"]')"


def until(condition: Callable[[], Any], seconds: float, pause: float = 0.05, what: str = "") -> Any:
    """Wait until a condition is true, and give its value. Raises TimeoutError."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > end:
            raise TimeoutError(f"not within {seconds:g} s: {what}")
        time.sleep(pause)
    return value


@contextmanager
def browser() -> Iterator[Callable[[], AbstractContextManager[Page]]]:
    """A browser meanwhile; what it gives opens a page for the time of a block, with a storage of its own."""
    program = chromium()
    if program is None:
        raise RuntimeError("no Chromium: run the browser tests by `make test-browser`, which installs it")
    with tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as folder:
        process = subprocess.Popen(
            [program, *FLAGS, f"--user-data-dir={folder}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            ready = Path(folder) / "DevToolsActivePort"
            until(lambda: ready.is_file() and ready.read_text().count("\n"), _STARTED, what="Chromium starts")
            port, path = ready.read_text().split("\n")[:2]
            with ExitStack() as connections:

                def attached(address: str) -> ClientConnection:
                    return connections.enter_context(connect(address, max_size=None))

                control = Target(attached(f"ws://127.0.0.1:{port}{path}"))

                @contextmanager
                def open_page() -> Iterator[Page]:
                    context = control.send("Target.createBrowserContext")["browserContextId"]
                    target = control.send("Target.createTarget", url="about:blank", browserContextId=context)
                    with urlopen(f"http://127.0.0.1:{port}/json/list") as listed:
                        pages = json.load(listed)
                    found = next(page for page in pages if page["id"] == target["targetId"])
                    yield Page(attached(found["webSocketDebuggerUrl"]))
                    control.send("Target.disposeBrowserContext", browserContextId=context)

                yield open_page
        finally:
            process.terminate()
            process.wait(timeout=10)


if __name__ == "__main__":
    sys.exit(install())
