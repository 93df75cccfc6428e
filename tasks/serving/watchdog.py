"""Resume an engine whose deployer died: `python -m tasks.serving.watchdog URL SECONDS`.

Started before the pause, it waits on its stdin. A line there says that the engine runs again. The end of stdin without one
means that the deployer is dead, and then, or when the time is over, the engine is resumed from here, with a label that says
that nobody knows its weights. Standard library only, so that it is there in a moment.
"""

import json
import select
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

UNKNOWN = "-1"
TRIES_S = 60.0
TIMEOUT_S = 10.0


@contextmanager
def watched(url: str, deadline_s: float) -> Iterator[Callable[[], None]]:
    """While the block runs another process stands by to resume the engine at `url`. Call what this gives once it runs."""
    command = [sys.executable, "-m", "tasks.serving.watchdog", url, str(deadline_s)]
    # A session of its own: what kills the deployer's process group does not reach it.
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as dog:
        yield lambda: _tell(dog)


def _tell(dog: subprocess.Popen[bytes]) -> None:
    assert dog.stdin is not None
    with suppress(OSError):  # it has seen its deadline
        dog.stdin.write(b"running\n")
        dog.stdin.flush()


def main() -> int:
    """Exit status: 0 when the engine runs, 1 when it could not be resumed."""
    url, seconds = sys.argv[1], float(sys.argv[2])
    signal.signal(signal.SIGTERM, _at_once)
    try:
        ready, _, _ = select.select([sys.stdin], [], [], seconds)
        if ready and sys.stdin.readline():
            return 0
    except InterruptedError:
        pass
    return 0 if release(url, TRIES_S) else 1


def release(url: str, tries_s: float) -> bool:
    """Distrust the weights and resume. Whether that was done before `tries_s` seconds were over."""
    deadline = time.monotonic() + tries_s
    while True:
        try:
            _post(f"{url}/update_weight_version", {"new_version": UNKNOWN})
            _post(f"{url}/resume", {})
        except OSError as error:
            print(f"watchdog: {url} cannot be resumed yet: {error}", file=sys.stderr)
        else:
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(1.0)


def _post(url: str, body: dict[str, str]) -> None:
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)  # noqa: S310 - an engine's URL
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    opener.open(request, timeout=TIMEOUT_S).close()


def _at_once(_number: int, _frame: FrameType | None) -> None:
    raise InterruptedError


if __name__ == "__main__":
    sys.exit(main())
