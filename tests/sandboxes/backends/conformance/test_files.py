"""Files in and out of the work tree. What comes out is what regular files hold; what goes in goes nowhere else."""

from contextlib import suppress

import pytest


async def sh(box, script: str, *, timeout_s: float = 20.0):
    return await box.exec(["sh", "-c", script], timeout_s=timeout_s)


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


OUT = [
    "../etc/passwd",
    "/etc/passwd",
    "pkg/../../x",
    "out/passwd",
    "link",
    "dangling",
    "pkg//x",
    ".",
    "",
    "a\0b",
    "pkg/",
    "/testbed/../etc/passwd",
]


async def test_paths_that_lead_out_or_through_links_are_refused(box):
    await sh(box, "ln -s /etc out; ln -s /etc/passwd link; ln -s /tmp/new dangling")
    refused = "not a plain path|goes through a link"
    for path in OUT:
        with pytest.raises(ValueError, match=refused):
            await box.read(path)
        with pytest.raises(ValueError, match=refused):
            await box.write({path: b"x"})
    assert await box.read("pkg/core.py") == b"ONE = 1\n"
    assert (await sh(box, "ls /tmp")).stdout == b""


async def test_only_regular_files_are_read(box):
    await sh(box, "mkfifo pipe; python3 -c 'import socket; socket.socket(1).bind(\"sock\")'; ln -s /dev/zero zero")
    for path in ("pkg", "pipe", "pkg/core.py/below", "sock", "zero"):
        with pytest.raises(ValueError, match=r"not a regular file|Not a directory|No such device|goes through a link"):
            await box.read(path)


async def test_a_new_file_takes_the_place_of_what_was_there(box):
    await sh(box, "mkfifo pipe; ln pkg/core.py twin; echo old > shut; chmod 000 shut; mkdir folder")
    await box.write({"pipe": b"1", "twin": b"2", "shut": b"3"})
    assert [await box.read(name) for name in ("pipe", "twin", "shut")] == [b"1", b"2", b"3"]
    assert await box.read("pkg/core.py") == b"ONE = 1\n"  # the other name of what `twin` was
    with pytest.raises(ValueError, match="directory"):
        await box.write({"folder": b"x"})


async def test_hard_links_to_what_is_the_roots_cannot_be_made(box):
    made = await sh(
        box, "for f in /etc/passwd /usr/bin/env /proc/1/environ /etc/shadow; do ln $f stolen; cp -l $f stolen; done; ls"
    )
    assert made.stdout == b"pkg\n"


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


async def test_names_are_not_taken_for_paths(box):
    await sh(box, "touch -- '-rf' 'a b' '..x' 'new\nline' 'C:\\x'")
    assert {"-rf", "a b", "..x", "new\nline", "C:\\x"} < set(await box.snapshot())


async def test_a_tree_that_claims_more_than_it_may_hold_is_refused(box):
    await sh(box, "truncate -s 1T sparse")
    with pytest.raises(ValueError, match="claims more than"):
        await box.snapshot()
    await sh(box, "rm sparse; head -c 100000000 /dev/zero > big; for i in 1 2 3 4; do ln big l$i; done")
    with pytest.raises(ValueError, match="claims more than"):
        await box.snapshot()


RACE = """
import os, shutil
def swap(path, target):
    os.rename(path, path + "-"); os.symlink(target, path); os.unlink(path); os.rename(path + "-", path)
print("on", flush=True)
while True:
    os.makedirs("a/b", exist_ok=True)
    for name, text in (("a/b/file", "mine"), ("size", "x" * 100_000)):
        with open(name, "w") as file:
            file.write(text)
    try:
        while True:
            swap("a", "/etc"); swap("a/b/file", "/etc/passwd")
            os.truncate("size", 0); os.truncate("size", 100_000)
            os.mkfifo("new"); os.rename("new", "pipe")
    except OSError:  # what is written meanwhile may be in the way
        for name in ("a", "a-"):
            shutil.rmtree(name, ignore_errors=True)
"""


async def test_a_background_process_cannot_race_what_is_read_and_written(box):
    number = await box.start(["python3", "-c", RACE])
    while b"on" not in (await box.output(number)).stdout:
        pass
    for _ in range(60):
        for act in (box.read("a/b/file"), box.read("a/passwd"), box.write({"a/b/new": b"x"}), box.read("pipe")):
            with suppress(ValueError, FileNotFoundError):
                assert await act in (b"mine", b"", None)
        for path, content in (await box.snapshot()).items():
            assert path.split("/")[0] in ("a", "a-", "pkg", "size"), path
            assert b"root" not in content, path
    assert (await box.stop(number)).exit_code == -9


async def test_a_name_that_is_none_is_refused(box):
    for path in ("\ud800", "x" * 300):
        with pytest.raises(ValueError, match=r"surrogates|too long"):
            await box.read(path)


async def test_names_that_would_fill_the_answer_are_refused(box):
    many = "import os\nfor n in range(9):\n  os.makedirs('x' * 250 + '/' + 'y' * 250, exist_ok=True)\n"
    many += "os.chdir('x' * 250 + '/' + 'y' * 250)\nfor n in range(6000): open('\\1' * 250 + str(n), 'w')"
    assert (await box.exec(["python3", "-c", many], timeout_s=30)).exit_code == 0
    with pytest.raises(ValueError, match="bytes of names"):
        await box.snapshot()


async def test_a_tree_of_more_than_fifty_thousand_files_is_refused(box):
    await sh(box, "rm -r pkg")
    many = "import os\nfor n in range(50_000): os.close(os.open(str(n), os.O_CREAT))"
    assert (await box.exec(["python3", "-c", many], timeout_s=60)).exit_code == 0
    assert len(await box.snapshot()) == 50_000
    await sh(box, "touch more")
    with pytest.raises(ValueError, match=r"claims more than .* 50000 files"):
        await box.snapshot()


async def test_deep_and_many_folders_are_refused_and_not_the_end(box):
    await box.exec(["python3", "-c", "import os\nfor _ in range(3000): os.mkdir('d'); os.chdir('d')"], timeout_s=20)
    with pytest.raises(ValueError):
        await box.snapshot()
    await sh(box, "rm -rf d")
    assert set(await box.snapshot()) == {"pkg/__init__.py", "pkg/core.py"}
