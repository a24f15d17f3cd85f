"""A real Chromium, driven by its driver: W3C WebDriver, and Chrome's devtools for sizes and pictures."""

from __future__ import annotations

import base64
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import httpx

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")
MISSING = "needs Debian's chromium and chromium-driver: apt-get install chromium chromium-driver"
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


class Chromium:
    def __init__(self, client: httpx.Client, session: str) -> None:
        self._client = client
        self._at = f"/session/{session}"

    def _ask(self, what: str, body: dict[str, Any] | None = None) -> Any:
        said = self._client.get(self._at + what) if body is None else self._client.post(self._at + what, json=body)
        value = said.json()["value"]
        assert said.status_code == 200, value
        return value

    def open(self, url: str) -> None:
        self._ask("/url", {"url": url})

    def run(self, script: str) -> Any:
        return self._ask("/execute/sync", {"script": script, "args": []})

    def devtools(self, command: str, **params: Any) -> Any:
        return self._ask("/goog/cdp/execute", {"cmd": command, "params": params})

    def find(self, selector: str) -> str:
        found: str = self._ask("/element", {"using": "css selector", "value": selector})[_ELEMENT]
        return found

    def click(self, selector: str) -> None:
        self._ask(f"/element/{self.find(selector)}/click", {})

    def type(self, selector: str, text: str) -> None:
        self._ask(f"/element/{self.find(selector)}/value", {"text": text})

    def press(self, keys: str) -> None:
        """Whatever has the focus gets them."""
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self._ask("/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def accept(self) -> None:
        self._ask("/alert/accept", {})

    @property
    def url(self) -> str:
        found: str = self._ask("/url")
        return found

    def resize(self, wide: int, high: int = 900) -> None:
        self.devtools(
            "Emulation.setDeviceMetricsOverride", width=wide, height=high, deviceScaleFactor=1, mobile=wide < 600
        )

    def colours(self, scheme: str) -> None:
        self.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def picture(self, file: Path) -> None:
        """Of the whole page."""
        file.parent.mkdir(parents=True, exist_ok=True)
        taken = self.devtools("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(taken["data"]))

    def wait(self, what: Callable[[], bool], seconds: float = 60) -> None:
        until = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < until, "it did not come"
            time.sleep(0.1)

    def errors(self) -> list[str]:
        """What the console of the browser complained of."""
        return [one["message"] for one in self._ask("/se/log", {"type": "browser"}) if one["level"] == "SEVERE"]


def _started(log: TextIO) -> tuple[subprocess.Popen[str], str]:
    """The driver takes a port that is free for IPv6, and gives up where another process has that one for IPv4."""
    said: list[str] = []
    for _ in range(10):
        driver = subprocess.Popen([str(DRIVER), "--port=0"], stdout=subprocess.PIPE, stderr=log, text=True)
        assert driver.stdout is not None
        for line in driver.stdout:
            said.append(line)
            if "successfully on port" in line:
                return driver, line.split()[-1].rstrip(".")
        driver.wait()
    raise AssertionError("".join(said))


@contextmanager
def chromium(folder: Path, *more: str) -> Iterator[Chromium]:
    assert BROWSER is not None
    with (folder / "driver.log").open("w") as log:
        driver, port = _started(log)
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=120) as client:
                words = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", *more]
                options = {"binary": BROWSER, "args": [*words, f"--user-data-dir={folder}/profile"]}
                wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
                made = client.post("/session", json={"capabilities": {"alwaysMatch": wanted}}).json()["value"]
                assert "sessionId" in made, made
                try:
                    yield Chromium(client, made["sessionId"])
                finally:
                    client.delete(f"/session/{made['sessionId']}")
        finally:
            driver.terminate()
            driver.wait(30)
            if driver.stdout:
                driver.stdout.close()
