"""A process behind three pipes whose start cannot be cancelled halfway.

`asyncio.create_subprocess_exec` that is cancelled before its pipes are connected waits for ever (CPython 3.11), so a program
that is interrupted while a box starts would never end.
"""

import asyncio
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Piped:
    """A running process. Its streams belong to the event loop that started it."""

    process: "subprocess.Popen[bytes]"
    stdin: asyncio.StreamWriter
    stdout: asyncio.StreamReader
    stderr: asyncio.StreamReader

    @property
    def returncode(self) -> int | None:
        return self.process.poll()

    def kill(self) -> None:
        """Nothing happens where it has ended."""
        self.process.kill()

    async def wait(self) -> int:
        """Its exit status, once it has ended."""
        if self.process.poll() is None:
            loop, ended = asyncio.get_running_loop(), asyncio.Event()
            handle = os.pidfd_open(self.process.pid)
            loop.add_reader(handle, ended.set)
            try:
                await ended.wait()
            finally:
                loop.remove_reader(handle)
                os.close(handle)
        return self.process.wait()


async def start(command: Sequence[str], env: Mapping[str, str], *, limit: int, keep: Sequence[int] = ()) -> Piped:
    """Run a command in `/` with the descriptors `keep`; lines on its output have at most `limit` bytes.

    OSError where it cannot be run.
    """
    process = subprocess.Popen(  # noqa: ASYNC220 - a millisecond, and all or nothing
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, cwd="/", pass_fds=keep
    )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, process.stdin)
        return Piped(
            process,
            asyncio.StreamWriter(transport, protocol, None, loop),
            await _reader(loop, process.stdout, limit),
            await _reader(loop, process.stderr, limit),
        )
    except BaseException:  # a start that is cancelled leaves no process
        process.kill()
        process.wait()
        raise


async def _reader(loop: asyncio.AbstractEventLoop, pipe: object, limit: int) -> asyncio.StreamReader:
    reader = asyncio.StreamReader(limit=limit)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    return reader
