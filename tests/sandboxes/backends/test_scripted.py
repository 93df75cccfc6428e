"""The scripted backend keeps the same promises on files, and answers as told."""

import pytest

from sandboxes.backends.base import BoxSpec, SandboxError
from sandboxes.backends.scripted import ScriptedBackend, said


async def test_commands_are_answered_by_the_script_which_may_change_files():
    def answer(argv, files):
        files["made"] = b"by the command"
        return said(b"done\n", exit_code=3)

    backend = ScriptedBackend(answer)
    box = await backend.start(BoxSpec(files={"a": b"1"}))
    assert (await box.exec(["make", "it"], timeout_s=1)).exit_code == 3
    assert await box.snapshot() == {"a": b"1", "made": b"by the command"}
    assert backend.boxes[0].commands == [["make", "it"]]


async def test_files_are_written_and_read_and_paths_that_lead_out_refused():
    box = await ScriptedBackend().start(BoxSpec())
    await box.write({"/testbed/a/b": b"x"})
    assert await box.read("a/b") == b"x"
    with pytest.raises(FileNotFoundError):
        await box.read("c")
    for path in ("../x", "/etc/passwd", "a/../b", "", "..x/../y"):
        with pytest.raises(ValueError, match="not a plain path"):
            await box.write({path: b""})


async def test_a_closed_box_says_so():
    box = await ScriptedBackend().start(BoxSpec())
    await box.close()
    with pytest.raises(SandboxError, match="closed"):
        await box.exec(["true"], timeout_s=1)
