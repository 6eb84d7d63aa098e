"""A real headless Chromium, driven through its DevTools protocol."""

import json
import shutil
import subprocess
import time
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from websockets.sync.client import ClientConnection, connect

CHROMIUM = shutil.which("chromium")

_SWITCHES = (
    "--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --disable-quic "
    "--no-first-run --disable-sync --disable-background-networking --disable-component-update "
    "--remote-debugging-port=0 --remote-allow-origins=*"
)

_FIND = """text => {
    const all = [...document.body.querySelectorAll('*')];
    const found = all.filter(e => e.innerText?.trim() === text && e.checkVisibility()).at(-1);
    if (!found) return null;
    found.scrollIntoView({block: 'center'});
    const box = found.getBoundingClientRect();
    return [box.x + box.width / 2, box.y + box.height / 2];
}"""


class Browser:
    """One page of a running Chromium; `faults` are the exceptions and errors that it reported."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._asked = 0
        self.faults: list[str] = []
        for domain in ("Page", "Runtime", "Log"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **parameters: object) -> dict[str, Any]:
        """Send a command of the protocol and wait for its answer."""
        self._asked += 1
        message = {"id": self._asked, "method": method, "params": parameters}
        self._connection.send(json.dumps(message))
        while True:
            heard = json.loads(self._connection.recv(timeout=60))
            if heard.get("id") == self._asked:
                assert "error" not in heard, f"{method}: {heard['error']}"
                return heard["result"]
            self._take_in(heard)

    def _take_in(self, heard: dict[str, Any]) -> None:
        if heard.get("method") == "Runtime.exceptionThrown":
            self.faults.append(json.dumps(heard["params"]["exceptionDetails"])[:500])
        elif heard.get("method") == "Log.entryAdded":
            entry = heard["params"]["entry"]
            if entry["level"] == "error":
                self.faults.append(entry["text"])

    def go(self, url: str) -> None:
        """Open a page."""
        self.ask("Page.navigate", url=url)

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression on the page."""
        answer = self.ask(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    @property
    def text(self) -> str:
        """What a person can read on the page."""
        return self.run("document.body ? document.body.innerText : ''")

    def until(self, *texts: str, timeout_s: float = 60.0) -> str:
        """Wait until all these texts stand on the page, and give all that stands there."""
        deadline = time.monotonic() + timeout_s
        while True:
            shown = self.text
            missing = [text for text in texts if text not in shown]
            if not missing:
                return shown
            assert time.monotonic() < deadline, f"never shown: {missing}\n\n{shown}"
            time.sleep(0.1)

    def click(self, text: str) -> None:
        """Click the smallest element that bears a text."""
        point = self.run(f"({_FIND})({json.dumps(text)})")
        assert point, f"nothing bears the text {text!r}:\n\n{self.text}"
        for kind in ("mousePressed", "mouseReleased"):
            self.ask(
                "Input.dispatchMouseEvent",
                type=kind,
                x=point[0],
                y=point[1],
                button="left",
                clickCount=1,
            )

    def size(self, width: int, height: int) -> None:
        """Make the window so large."""
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def prefer(self, scheme: str) -> None:
        """Prefer `light` or `dark`, as a person's system does."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.ask("Emulation.setEmulatedMedia", features=[feature])

    def picture(self, path: Path) -> None:
        """Write what is seen as a picture, PNG or WebP by the file's name."""
        kind = path.suffix.removeprefix(".")
        path.write_bytes(b64decode(self.ask("Page.captureScreenshot", format=kind)["data"]))


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """Run a Chromium with a profile of its own."""
    assert CHROMIUM is not None
    command = [CHROMIUM, *_SWITCHES.split(), f"--user-data-dir={profile}", "about:blank"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with connect(_page(profile), max_size=None) as connection:
            yield Browser(connection)
    finally:
        process.terminate()
        process.wait(20)


def _page(profile: Path) -> str:
    """The address of the first page, once Chromium has said where it listens."""
    told = profile / "DevToolsActivePort"
    deadline = time.monotonic() + 60
    while not (told.exists() and told.read_text()):
        assert time.monotonic() < deadline, "Chromium did not start"
        time.sleep(0.05)
    port = told.read_text().split()[0]
    while True:
        pages = httpx.get(f"http://127.0.0.1:{port}/json/list", timeout=20).json()
        for page in pages:
            if page["type"] == "page":
                return page["webSocketDebuggerUrl"]
        assert time.monotonic() < deadline, "Chromium shows no page"
        time.sleep(0.05)
