"""An agent's program in a box of its own: it holds the problem's work tree and reaches the gateway, nothing else."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, runtime_checkable

from sandboxes.agents import CommandAgent
from sandboxes.agents.base import AgentFailure, Program, Ran
from sandboxes.backends.base import GATEWAY_URL, WORKDIR, Backend, Box, BoxSpec, Limits, SandboxError
from sandboxes.backends.images import ImageMissing
from sandboxes.backends.rootfs import Recipe
from sandboxes.backends.trees import Tree, executables
from sandboxes.problems.base import Environment

FOLDER = ".agent"  # the program's own files, beside the work tree's; never part of it
OUTPUT_BYTES = 16_384  # kept of each stream
CHECK_S = 30.0
AFTER_S = 60.0  # outside of an episode, whose deadline decides else, a box outlives its program by at most this


@runtime_checkable
class Workplace(Protocol):
    """An environment whose state is a work tree, path -> content. `image`: what its boxes run on; None: the standard one."""

    tree: Mapping[str, bytes]

    @property
    def image(self) -> str | None: ...


class Boxed:
    """`agents.base.Programs` over one episode's work tree. `door`: the gateway's socket for boxes."""

    base_url = f"{GATEWAY_URL}/v1"
    folder = f"{WORKDIR}/{FOLDER}"

    def __init__(self, place: Workplace, backend: Backend, door: Path | None) -> None:
        self._place = place
        self._backend = backend
        self._door = door

    async def run(self, program: Program) -> Ran:
        """Run a program to its end, and take over the tree that it leaves. SandboxError where the box, not the program,
        failed; AgentFailure where both bring an image."""
        image = image_of(program)
        if image and self._place.image:
            raise AgentFailure(
                f"the problem has an image of its own ({self._place.image}) and so has the agent ({image}): a box has one. "
                "Give such an agent its files as a `folder`"
            )
        own = {f"{FOLDER}/{name}": content for name, content in program.files.items()}
        files = Tree({**self._place.tree, **own}, executable=executables(self._place.tree) | own.keys())
        box = await start(self._backend, program, self._door, image or self._place.image, files)
        try:
            done = await box.exec(program.argv, timeout_s=program.timeout_s, env=program.env)
            output = (done.stdout + done.stderr).decode(errors="replace")
            if not done.timed_out:
                try:
                    left = await box.snapshot()
                except ValueError as error:  # too large: it is graded as if it had changed nothing
                    output += f"\n{error}: nothing of what the program left is kept"
                else:
                    kept = {path: content for path, content in left.items() if not path.startswith(f"{FOLDER}/")}
                    self._place.tree = Tree(kept, executable=executables(left) & kept.keys())
        finally:
            await box.close()
        return Ran(None if done.timed_out else done.exit_code, output)


def boxed(environment: Environment, backend: Backend, door: Path | None) -> Boxed | None:
    """What runs programs in this environment; None where it has no work tree."""
    return Boxed(environment, backend, door) if isinstance(environment, Workplace) else None


async def check(agent: CommandAgent, backend: Backend, door: Path | None) -> None:
    """Whether an agent can be run here: its image, the way to the gateway, its command. SandboxError, with the remedy."""
    program = agent.program({"folder": Boxed.folder})
    image = image_of(program)
    box = await start(backend, program, door, image, {f"{FOLDER}/{name}": data for name, data in program.files.items()})
    try:
        found = await box.exec(["sh", "-c", 'command -v "$0"', program.argv[0]], timeout_s=CHECK_S)
    finally:
        await box.close()
    if image and found.exit_code != 0:  # without an image of its own, the problem's may have the command
        raise SandboxError(
            f"the image {image} has no command {program.argv[0]!r}, which the agent {agent.name} is called by"
        )


def image_of(program: Program) -> str | None:
    """The image that a program needs; None where any will do."""
    if program.python or program.debian:
        return Recipe(tuple(program.debian), tuple(program.python)).name
    return program.image


async def start(
    backend: Backend, program: Program, door: Path | None, image: str | None, files: Mapping[str, bytes]
) -> Box:
    """A box for a program. SandboxError, with the remedy, where there is no image or no way to the gateway."""
    if door is None or not await asyncio.to_thread(door.exists):
        raise SandboxError(
            "the gateway has no socket for boxes, so a program in a box cannot reach the model: start the gateway with "
            "--socket, or the stack again with `lakeloop down` and `lakeloop up`"
        )
    limits = Limits(
        memory_mb=program.memory_mb,
        pids=program.processes,
        output_bytes=OUTPUT_BYTES,
        lease_s=program.timeout_s + AFTER_S,
    )
    try:
        return await backend.start(BoxSpec(files=files, image=image, gateway=door, limits=limits))
    except ImageMissing as error:
        packages = [*(f"--debian {one}" for one in program.debian), *(f"--python {one}" for one in program.python)]
        if not packages:
            raise
        how = " ".join(["lakeloop images build", *packages])
        raise ImageMissing(f"the agent's image is not on this machine: run `{how}` once as root") from error
