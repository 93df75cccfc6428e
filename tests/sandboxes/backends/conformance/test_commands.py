"""What every backend promises to whoever runs a command: arguments, environment, output, time."""

import asyncio
import re
import signal

import pytest

from sandboxes.backends.base import BoxSpec, SandboxError
from sandboxes.deadline import Deadline, DeadlineExceeded

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def sh(box, script: str, *, timeout_s: float = 20.0, **more):
    return await box.exec(["sh", "-c", script], timeout_s=timeout_s, **more)


async def test_exit_codes_and_both_streams_come_back(shared):
    result = await sh(shared, "echo out; echo err >&2; exit 7")
    assert (result.exit_code, result.stdout, result.stderr) == (7, b"out\n", b"err\n")
    assert not result.timed_out
    assert result.dropped_bytes == 0
    assert (await sh(shared, "kill -TERM $$")).exit_code == -15


async def test_stdin_reaches_the_command_and_bytes_need_not_be_text(shared):
    data = bytes(range(256)) * 4000
    result = await shared.exec(["sha256sum"], timeout_s=20, stdin=data)
    assert (
        result.stdout.split()[0] == (await shared.exec(["sha256sum", "-"], timeout_s=20, stdin=data)).stdout.split()[0]
    )
    assert (await shared.exec(["cat"], timeout_s=20, stdin=b"\xff\x00\xfe")).stdout == b"\xff\x00\xfe"
    assert (await shared.exec(["true"], timeout_s=20, stdin=data)).exit_code == 0  # unread stdin is no error


async def test_commands_see_their_folder_environment_and_tools(backend):
    box = await backend.start(BoxSpec(files={"sub/x": b""}, env={"COLOUR": "red", "SIZE": "1"}))
    result = await sh(box, "pwd; echo $COLOUR $SIZE", cwd="/testbed/sub", env={"SIZE": "2"})
    assert result.stdout == b"/testbed/sub\nred 2\n"
    tools = await sh(
        box, "python3 -m pytest --version && python3 -V && rg --version && grep x /dev/null; which awk patch"
    )
    assert b"pytest" in tools.stdout
    assert b"Python 3.11" in tools.stdout
    assert tools.exit_code == 0
    await box.close()


async def test_nothing_of_the_controllers_environment_is_seen(backend, monkeypatch):
    monkeypatch.setenv("SECRET_KEY", "s3cret")
    monkeypatch.setenv("PYTHONPATH", "/")
    box = await backend.start(BoxSpec())
    seen = (await sh(box, "env -0; cat /proc/self/environ")).stdout
    names = {entry.partition(b"=")[0] for entry in seen.split(b"\0") if entry}
    assert names <= {b"PATH", b"HOME", b"LANG", b"TZ", b"PYTHONDONTWRITEBYTECODE", b"PWD", b"OLDPWD", b"_", b"SHLVL"}
    await box.close()


async def test_signals_that_the_controller_ignores_or_blocks_reach_commands(backend):
    # A handler that other code set without Python is None here, and cannot be put back.
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGQUIT, signal.SIGHUP)}
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    try:
        box = await backend.start(BoxSpec())
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    seen = await box.exec(["grep", "-E", "Sig(Blk|Ign)", "/proc/self/status"], timeout_s=20)
    masks = [int(mask, 16) for mask in seen.stdout.split()[1::2]]
    assert len(masks) == 2
    for number in (signal.SIGQUIT, signal.SIGHUP, signal.SIGUSR1):
        assert not any(mask & (1 << (number - 1)) for mask in masks), (number, seen.stdout)
    await box.close()


async def test_a_folder_that_cannot_be_entered_is_the_commands_failure(shared):
    result = await sh(shared, "true", cwd="/nowhere")
    assert (result.exit_code, result.stderr) == (126, b"sh: cannot run in '/nowhere': No such file or directory\n")
    for name in ("a\0b", "\ud800"):
        assert b"sh: cannot run in " in (await sh(shared, "true", cwd=name)).stderr
    assert (await sh(shared, "pwd", cwd="pkg")).stdout == b"/testbed/pkg\n"


async def test_output_need_not_be_text(shared):
    result = await sh(shared, r"printf '\377\376\000bad\n'; printf '\300' >&2; exit 3")
    assert (result.exit_code, result.stdout, result.stderr) == (3, b"\xff\xfe\x00bad\n", b"\xc0")
    name = await shared.exec(["printf", "\udcff"], timeout_s=20)  # an argument that is no UTF-8, as Python spells it
    assert name.stdout == b"\xff"


async def test_a_command_needs_a_time_that_ends(shared):
    for seconds in (float("inf"), float("nan")):
        with pytest.raises(ValueError, match="needs a time-out in seconds"):
            await sh(shared, "true", timeout_s=seconds)


async def test_silence_is_told_from_the_deadline(shared):
    quiet = await sh(shared, "echo on; sleep 30", silence_s=0.5)
    assert (quiet.stopped_by, quiet.exit_code, quiet.stdout, quiet.timed_out) == ("silence", None, b"on\n", True)
    assert quiet.duration_s < 15
    busy = await sh(shared, "while true; do echo x >&2; sleep 0.1; done", timeout_s=1.5, silence_s=10)
    assert busy.stopped_by == "deadline"
    done = await sh(shared, "for i in 1 2 3 4 5 6; do echo $i; sleep 0.2; done", silence_s=10)
    assert (done.stopped_by, done.exit_code) == (None, 0)


async def test_a_command_ends_with_the_deadline_around_it_which_says_what_went_on(shared):
    with (
        Deadline(0.5, "the episode"),
        pytest.raises(DeadlineExceeded, match=r"0\.5 s for the episode .*while the command 'sleep 60' ran"),
    ):
        await shared.exec(["sleep", "60"], timeout_s=30)
    with Deadline(60, "the episode"):
        assert (await shared.exec(["sleep", "60"], timeout_s=0.2)).stopped_by == "deadline"
    assert (await sh(shared, "echo on")).stdout == b"on\n"


async def test_a_command_that_does_not_exist_is_the_commands_failure(shared):
    result = await shared.exec(["no-such-command"], timeout_s=20)
    assert result.exit_code == 127
    assert b"no-such-command: cannot run" in result.stderr


async def test_output_beyond_the_limit_is_drained_and_counted(shared):
    result = await sh(shared, "yes | head -c 20000000; yes e | head -c 3000000 >&2")
    for stream, said in ((result.stdout, b"y\n"), (result.stderr, b"e\n")):
        assert re.fullmatch(rb"(%s){16384}\n\[\.\.\. \d+ bytes left out \.\.\.\]\n(%s){16384}" % (said, said), stream)
    assert result.dropped_bytes == 23_000_000 - 2 * 65_536
    assert result.exit_code == 0


async def test_an_argument_the_kernel_would_not_take_is_a_clear_error(shared):
    for size in (131_072, 3_000_000):
        with pytest.raises(ValueError, match="send it over stdin"):
            await shared.exec(["echo", "x" * size], timeout_s=20)
    with pytest.raises(ValueError, match="send them over stdin"):
        await shared.exec(["echo", *["x" * 1000] * 2000], timeout_s=20)
    assert (await shared.exec(["echo", "x" * 131_071], timeout_s=20)).exit_code == 0


async def test_calls_of_many_callers_take_turns(shared):
    results = await asyncio.gather(*(sh(shared, f"echo {number}") for number in range(20)))
    assert [result.stdout for result in results] == [b"%d\n" % number for number in range(20)]


async def test_a_closed_box_says_so_and_may_be_closed_again(backend):
    box = await backend.start(BoxSpec())
    await box.close()
    await box.close()
    with pytest.raises(SandboxError, match="it was closed"):
        await sh(box, "true")
