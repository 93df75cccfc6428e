"""Inside a peer's own environment: run commands its way and tell how long each took.

Self-contained (standard library and the peer alone): `python sandbox_peers.py mini-swe-agent IMAGE`, or `swe-rex`. For every line
on stdin, a number, that many commands are run, and a line with a JSON list of their milliseconds comes back.
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable

Run = Callable[[], Awaitable[str]]
COMMAND = "echo hello"


def mini_swe_agent(image: str) -> "tuple[Run, Callable[[], None]]":
    from minisweagent.environments.docker import DockerEnvironment  # noqa: PLC0415 - each is in its own environment

    environment = DockerEnvironment(image=image, run_args=["--rm", "--network", "none"])

    async def run() -> str:
        return str(environment.execute({"command": COMMAND})["output"])

    return run, environment.cleanup


async def swe_rex() -> "tuple[Run, Callable[[], Awaitable[object]]]":
    from swerex.runtime.abstract import BashAction, CreateBashSessionRequest  # noqa: PLC0415
    from swerex.runtime.local import LocalRuntime  # noqa: PLC0415

    runtime = LocalRuntime()
    await runtime.create_session(CreateBashSessionRequest(startup_timeout=60))

    async def run() -> str:
        return str((await runtime.run_in_session(BashAction(command=COMMAND))).output)

    return run, runtime.close


async def serve(run: Run) -> None:
    for line in sys.stdin:
        found = []
        for _ in range(int(line)):
            began = time.perf_counter()
            said = await run()
            found.append((time.perf_counter() - began) * 1000)
            if said.strip() != "hello":
                raise RuntimeError(f"the command said {said!r}")
        print(json.dumps(found), flush=True)


async def peer(name: str, image: str) -> None:
    if name == "swe-rex":
        run, close = await swe_rex()
        try:
            await serve(run)
        finally:
            await close()
        return
    run, cleanup = mini_swe_agent(image)
    try:
        await serve(run)
    finally:
        cleanup()


if __name__ == "__main__":
    asyncio.run(peer(sys.argv[1], sys.argv[2]))
