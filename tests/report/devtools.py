"""One headless Chromium for the tests of a module, driven over a pipe by its DevTools protocol."""

import json
import os
import select
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

from report.browser import FLAGS, program

ANSWER_SECONDS = 60.0
"""How long one wait for the browser may take before the test fails; answers take milliseconds."""
END_SECONDS = 20.0
"""How long the browser may take to end when asked to; then it is killed."""
_KEYS = {
    "+": ("Equal", 187),
    "-": ("Minus", 189),
    "0": ("Digit0", 48),
    "Enter": ("Enter", 13),
    "Tab": ("Tab", 9),
}


@contextmanager
def chromium(folder: Path) -> Iterator["Tab"]:
    """A tab of a browser that has no network; skips the test where there is no browser."""
    down, up = os.pipe(), os.pipe()
    flags = [
        *FLAGS,
        "--remote-debugging-pipe",
        f"--user-data-dir={folder / 'profile'}",
        "--host-resolver-rules=MAP * ~NOTFOUND",
    ]
    command = [program(), *flags, "about:blank"]
    # The browser reads the protocol from descriptor 3 and writes it to 4.
    redirected = f'exec "$0" "$@" 3</dev/fd/{down[0]} 4>/dev/fd/{up[1]}'
    process = subprocess.Popen(
        ["/bin/sh", "-c", redirected, *command],
        pass_fds=(down[0], up[1]),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(down[0])
    os.close(up[1])
    pipe = Pipe(down[1], up[0])
    try:
        yield Tab(pipe)
    finally:
        pipe.close()
        process.terminate()
        try:
            process.wait(timeout=END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Pipe:
    """Messages to and from the browser, none of which is waited for beyond a limit: one that hangs
    fails a test.
    """

    def __init__(self, requests: int, answers: int) -> None:
        self._requests, self._answers, self._rest = requests, answers, b""
        os.set_blocking(requests, False)
        self._deadline, self._awaited = 0.0, ""

    def close(self) -> None:
        os.close(self._requests)
        os.close(self._answers)

    def expect(self, what: str) -> None:
        """Begin to wait for `what`, which has to come within the limit whatever else comes
        meanwhile.
        """
        self._deadline, self._awaited = time.monotonic() + ANSWER_SECONDS, what

    def send(self, message: bytes) -> None:
        left = memoryview(message)
        while left:
            _, ready, _ = select.select([], [self._requests], [], self._seconds_left())
            try:
                left = left[os.write(self._requests, left) :] if ready else left
            except BrokenPipeError:
                raise AssertionError(f"the browser has ended before {self._awaited}") from None

    def receive(self) -> bytes:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._answers], [], [], self._seconds_left())
            if ready:
                more = os.read(self._answers, 1 << 20)
                assert more, f"the browser has ended before {self._awaited}"
                self._rest += more
        message, _, self._rest = self._rest.partition(b"\0")
        return message

    def _seconds_left(self) -> float:
        left = self._deadline - time.monotonic()
        assert left > 0, f"the browser took more than {ANSWER_SECONDS:g} s for {self._awaited}"
        return left


class Tab:
    """A page, what it has logged, and what may be done to it."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe, self._numbers, self._session = pipe, count(1), ""
        self.log: list[str] = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log"):
            self._call(f"{domain}.enable")

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        request = {"id": number, "method": method, "params": parameters}
        request |= {"sessionId": self._session} if self._session else {}
        self._pipe.expect(f"the answer to {method} {str(parameters)[:200]}")
        self._pipe.send(json.dumps(request).encode() + b"\0")
        while True:
            message = self._next()
            if message.get("id") == number:
                assert "error" not in message, (method, message)
                return message["result"]

    def _next(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self._pipe.receive())
        if message.get("method") in (
            "Runtime.consoleAPICalled",
            "Runtime.exceptionThrown",
            "Log.entryAdded",
        ):
            self.log.append(json.dumps(message["params"]))
        return message

    def open(
        self,
        address: str,
        *,
        width: int = 1280,
        height: int = 900,
        media: str = "",
        script: bool = True,
        **features: str,
    ) -> None:
        """features: of media, such as prefers_color_scheme="dark"; media: "print" for paper."""
        self.log.clear()
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        self._call("Emulation.setScriptExecutionDisabled", value=not script)
        self.media(media, **features)
        self._call("Page.navigate", url="about:blank")
        self._call("Page.navigate", url=address)
        self._pipe.expect(f"the load of {address}")
        while self._next().get("method") != "Page.loadEventFired":
            pass
        # The first event may be that of the blank page before it.
        deadline = time.monotonic() + ANSWER_SECONDS
        while (
            self.js("location.href") == "about:blank"
            or self.js("document.readyState") != "complete"
        ):
            assert time.monotonic() < deadline, (
                f"{address} was not complete after {ANSWER_SECONDS:g} s"
            )

    def media(self, media: str = "", **features: str) -> None:
        asked = [
            {"name": name.replace("_", "-"), "value": value} for name, value in features.items()
        ]
        self._call("Emulation.setEmulatedMedia", media=media, features=asked)

    def js(self, expression: str) -> Any:
        """The value of an expression, awaited where it is a promise."""
        found = self._call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def soon(self, expression: str, wanted: Any) -> None:
        """Asks until the answer is the wanted one; between two pages, and before charts are drawn,
        there is none.
        """
        deadline, found = time.monotonic() + ANSWER_SECONDS, None
        while True:
            with suppress(AssertionError):
                found = self.js(expression)
            if found == wanted:
                return
            assert time.monotonic() < deadline, (expression, found)
            time.sleep(0.02)

    def press(self, key: str, **modifiers: int) -> None:
        code, number = _KEYS.get(key, (key, 0))
        text = {"text": "\r" if key == "Enter" else key} if key == "Enter" or len(key) == 1 else {}
        for kind in ("keyDown", "keyUp"):
            self._call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=code,
                windowsVirtualKeyCode=number,
                **text,
                **modifiers,
            )

    def mouse(self, kind: str, x: float, y: float, button: str = "none", clicks: int = 0) -> None:
        self._call(
            "Input.dispatchMouseEvent", type=kind, x=x, y=y, button=button, clickCount=clicks
        )

    def click(self, x: float, y: float) -> None:
        self.drag((x, y), (x, y))

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        self.mouse("mouseMoved", *start)
        self.mouse("mousePressed", *start, "left", 1)
        for share in (0.5, 1.0) if start != end else ():
            self.mouse(
                "mouseMoved",
                *(a + share * (b - a) for a, b in zip(start, end, strict=True)),
                "left",
            )
        self.mouse("mouseReleased", *end, "left", 1)

    def picture(self, file: Path) -> None:
        """Of the whole page."""
        import base64

        data = self._call("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        file.write_bytes(base64.b64decode(data))
