"""What every backend promises to whoever holds a box: commands, files, snapshots."""

import asyncio
import re

import pytest

from sandboxes.backends.base import BoxSpec, Limits, SandboxError


async def sh(box, script: str, *, timeout_s: float = 20.0, **more):
    return await box.exec(["sh", "-c", script], timeout_s=timeout_s, **more)


async def test_exit_codes_and_both_streams_come_back(box):
    result = await sh(box, "echo out; echo err >&2; exit 7")
    assert (result.exit_code, result.stdout, result.stderr) == (7, b"out\n", b"err\n")
    assert not result.timed_out
    assert result.dropped_bytes == 0
    assert (await sh(box, "kill -TERM $$")).exit_code == -15


async def test_stdin_reaches_the_command_and_bytes_need_not_be_text(box):
    data = bytes(range(256)) * 4000
    result = await box.exec(["sha256sum"], timeout_s=20, stdin=data)
    assert result.stdout.split()[0] == (await box.exec(["sha256sum", "-"], timeout_s=20, stdin=data)).stdout.split()[0]
    assert (await box.exec(["cat"], timeout_s=20, stdin=b"\xff\x00\xfe")).stdout == b"\xff\x00\xfe"
    assert (await box.exec(["true"], timeout_s=20, stdin=data)).exit_code == 0  # unread stdin is no error


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


async def test_a_command_that_does_not_exist_is_the_commands_failure(box):
    result = await box.exec(["no-such-command"], timeout_s=20)
    assert result.exit_code == 127
    assert b"no-such-command: cannot run" in result.stderr


async def test_output_beyond_the_limit_is_drained_and_counted(box):
    result = await sh(box, "yes | head -c 20000000; yes e | head -c 3000000 >&2")
    for stream, said in ((result.stdout, b"y\n"), (result.stderr, b"e\n")):
        assert re.fullmatch(rb"(%s){16384}\n\[\.\.\. \d+ bytes left out \.\.\.\]\n(%s){16384}" % (said, said), stream)
    assert result.dropped_bytes == 23_000_000 - 2 * 65_536
    assert result.exit_code == 0


@pytest.mark.parametrize("size", [131_072, 3_000_000])
async def test_an_argument_the_kernel_would_not_take_is_a_clear_error(box, size):
    with pytest.raises(ValueError, match="send it over stdin"):
        await box.exec(["echo", "x" * size], timeout_s=20)
    with pytest.raises(ValueError, match="send them over stdin"):
        await box.exec(["echo", *["x" * 1000] * 2000], timeout_s=20)
    assert (await box.exec(["echo", "x" * 131_071], timeout_s=20)).exit_code == 0


async def test_files_are_written_read_and_replaced(box):
    content = bytes(range(256)) * 3000
    await box.write({"deep/er/data.bin": content, "/testbed/top.txt": b"", "pkg/core.py": b"TWO = 2\n", "ünï": b"x"})
    assert (await box.exec(["cat", "ünï"], timeout_s=20)).stdout == await box.read("ünï") == b"x"
    assert await box.read("deep/er/data.bin") == content
    assert await box.read("/testbed/top.txt") == b""
    assert (await sh(box, "cat pkg/core.py; id -u; stat -c %u deep/er")).stdout == b"TWO = 2\n1000\n1000\n"
    with pytest.raises(FileNotFoundError):
        await box.read("absent.txt")
    with pytest.raises(ValueError, match="more than the limit"):
        await box.read("deep/er/data.bin", limit_bytes=10)


@pytest.mark.parametrize(
    "path", ["../etc/passwd", "/etc/passwd", "pkg/../../x", "out/passwd", "link", "pkg//x", ".", "", "a\0b"]
)
async def test_paths_that_lead_out_or_through_links_are_refused(box, path):
    await sh(box, "ln -s /etc out; ln -s /etc/passwd link")
    refused = "not a plain path|goes through a link"
    with pytest.raises(ValueError, match=refused):
        await box.read(path)
    with pytest.raises(ValueError, match=refused):
        await box.write({path: b"x"})
    assert await box.read("pkg/core.py") == b"ONE = 1\n"


@pytest.mark.parametrize("path", ["pkg", "pipe", "pkg/core.py/below"])
async def test_only_regular_files_are_read(box, path):
    await sh(box, "mkfifo pipe")
    with pytest.raises(ValueError, match=r"not a regular file|Not a directory"):
        await box.read(path)


async def test_a_full_work_tree_is_the_writers_error_and_the_box_goes_on(backend):
    box = await backend.start(BoxSpec(limits=Limits(workdir_mb=4)))
    with pytest.raises(ValueError, match="No space left"):
        await box.write({"a": b"x" * (8 << 20), "b": b"y"})
    assert (await sh(box, "rm -f a; echo fine")).stdout == b"fine\n"
    await box.close()


async def test_a_snapshot_is_every_regular_file_and_nothing_else(box):
    await sh(
        box, "ln -s /etc/passwd link; mkfifo pipe; ln -s /etc out; mkdir empty; printf 'x' > $(printf 'bad\\377name')"
    )
    await sh(box, "echo hidden > secret; chmod 000 secret; mkdir shut; echo in > shut/file; chmod 000 shut pkg/core.py")
    assert await box.snapshot() == {
        "pkg/__init__.py": b"",
        "pkg/core.py": b"ONE = 1\n",
        "secret": b"hidden\n",
        "shut/file": b"in\n",
    }


async def test_a_tree_that_claims_more_than_it_may_hold_is_refused(box):
    await sh(box, "truncate -s 1T sparse")
    with pytest.raises(ValueError, match="claims more than"):
        await box.snapshot()
    await sh(box, "rm sparse; head -c 100000000 /dev/zero > big; for i in 1 2 3 4; do ln big l$i; done")
    with pytest.raises(ValueError, match="claims more than"):
        await box.snapshot()


async def test_calls_of_many_callers_take_turns(box):
    results = await asyncio.gather(*(sh(box, f"echo {number}") for number in range(20)))
    assert [result.stdout for result in results] == [b"%d\n" % number for number in range(20)]


async def test_a_closed_box_says_so_and_may_be_closed_again(box):
    await box.close()
    await box.close()
    with pytest.raises(SandboxError, match="it was closed"):
        await sh(box, "true")
