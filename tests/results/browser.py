"""A real Chromium that a test talks to: DevTools messages over two pipes, no library between."""

import base64
import json
import os
import select
import subprocess
import time
from pathlib import Path
from typing import Any

PROGRAM = "chromium"
_PATIENCE_S = 40
_SWITCHES = (
    "--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run "
    "--disable-sync --disable-background-networking --disable-component-update "
    "--remote-debugging-pipe"
)

Json = dict[str, Any]


class Browser:
    """One browser with one page; everything that it said is in `events`."""

    def __init__(self, profile: Path) -> None:
        commands, self._commands = os.pipe()
        self._answers, answers = os.pipe()
        # The browser reads from descriptor 3 and writes to 4; a shell puts the pipes there.
        moved = f'exec "$@" 3<&{commands} 4>&{answers}'
        program = [PROGRAM, *_SWITCHES.split(), f"--user-data-dir={profile}", "about:blank"]
        self._process = subprocess.Popen(
            ["bash", "-c", moved, "bash", *program],
            pass_fds=(commands, answers),
            stderr=subprocess.DEVNULL,
        )
        os.close(commands)
        os.close(answers)
        self._number, self._rest, self._session = 0, b"", ""
        self.events: list[Json] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        attached = self.ask("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def close(self) -> None:
        """End the browser and wait until it is gone."""
        self._session = ""
        self.ask("Browser.close")
        self._process.wait(timeout=_PATIENCE_S)
        os.close(self._commands)
        os.close(self._answers)

    def ask(self, method: str, **parameters: object) -> Json:
        """Send a command and wait for its answer; what comes in between is kept."""
        self._number += 1
        message: Json = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            told = self._next()
            if told.get("id") == self._number:
                assert "error" not in told, f"{method}: {told['error']}"
                return told["result"]
            self.events.append(told)

    def open(self, path: Path) -> None:
        """Load a page and wait until it is there."""
        self.events.clear()
        self.ask("Page.navigate", url=path.as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def run(self, script: str) -> Any:
        """Run an expression in the page as if a person had asked for it; promises are awaited."""
        answer = self.ask(
            "Runtime.evaluate",
            expression=script,
            awaitPromise=True,
            returnByValue=True,
            userGesture=True,
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def prefer(self, scheme: str) -> None:
        """Have the reader prefer `dark` or `light`."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.ask("Emulation.setEmulatedMedia", features=features)

    def width(self, pixels: int) -> None:
        """Look at the page through a window of a width."""
        size = {"width": pixels, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.ask("Emulation.setDeviceMetricsOverride", **size)

    def pdf(self) -> bytes:
        """Print the page."""
        return base64.b64decode(self.ask("Page.printToPDF", printBackground=True)["data"])

    def _next(self) -> Json:
        deadline = time.monotonic() + _PATIENCE_S
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._answers], [], [], deadline - time.monotonic())
            assert ready, "the browser said nothing"
            data = os.read(self._answers, 1 << 20)
            assert data, "the browser is gone"
            self._rest += data
        message, _, self._rest = self._rest.partition(b"\0")
        told: Json = json.loads(message)
        return told
