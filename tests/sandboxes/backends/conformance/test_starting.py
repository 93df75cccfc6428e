"""How a command starts: what it inherits, where its program is looked for, and that nobody in the box can get in between."""

import json

from tests.sandboxes.backends.conformance.outside import mark, marked, until

HERSELF = """
import json, os, resource, time
def score(pid):
    return int(open(f"/proc/{pid}/oom_score_adj").read())
while score(1) == 1000:  # it lowers its own again while we start
    time.sleep(0.001)
def status(pid):
    return {name: value.strip() for name, _, value in (line.partition(":") for line in open(f"/proc/{pid}/status"))}
print(json.dumps({
    "status": status("self"),
    "runner": status(1),
    "oom": [score(pid) for pid in ("self", 1)],
    "leads its session": os.getsid(0) == os.getpid() == os.getpgid(0),
    "descriptors": sorted(int(name) for name in os.listdir("/proc/self/fd")),
    "files": resource.getrlimit(resource.RLIMIT_NOFILE),
    "parent": os.getppid(),
}), flush=True)
"""


def check(said: bytes, runner_uid: int) -> None:
    her = json.loads(said)
    status, runner = her["status"], her["runner"]
    for kind in ("Uid", "Gid"):
        assert status[kind].split() == ["1000"] * 4  # real, effective, saved, of files
        assert runner[kind].split() == [str(runner_uid)] * 4
    assert status["Groups"] == ""
    assert {status[f"Cap{kind}"].strip("0") for kind in ("Inh", "Prm", "Eff", "Amb")} == {""}
    assert (status["NoNewPrivs"], status["Seccomp"], status["Umask"]) == ("1", "2", "0022")
    assert her["oom"][0] == 1000 > her["oom"][1]
    assert her["leads its session"]
    assert her["parent"] == 1
    assert her["descriptors"] == [0, 1, 2, 3]  # the last to list them by
    assert her["files"] == [4096, 4096]


async def said_by(box, number: int) -> bytes:
    heard = b""
    while not heard.endswith(b"\n"):
        heard += (await box.output(number)).stdout
    return heard


async def test_a_command_is_the_agents_alone_whichever_way_it_starts(backend, box):
    runner_uid = 0 if backend.name == "docker" else 1000
    herself = ["python3", "-c", HERSELF]
    check((await box.exec(herself, timeout_s=20)).stdout, runner_uid)
    check(await said_by(box, await box.start(herself)), runner_uid)
    await box.start(["sleep", "1000"])
    check((await box.exec(herself, timeout_s=20)).stdout, runner_uid)  # beside others


PROGRAMS = """
mkdir first second; ln -s /dev/null file
echo 'echo first' > first/only; echo '#!/bin/sh\necho first' > first/plain; chmod +x first/only
printf '#!/bin/sh\necho second "$0" "$@"\n' | tee second/plain second/both > here; chmod +x second/* here
mkdir -m 700 mine; mkdir -m 000 shut
"""


# argv, PATH, exit code, how what it says begins
LOOKED_FOR = [
    (["both", "a b", ""], "first:second", 0, b"second second/both a b \n"),
    (["plain"], "first:second", 0, b"second second/plain\n"),  # the first may not be executed
    (["plain"], "second:first", 0, b"second second/plain\n"),
    (["plain"], "first:/nowhere", 126, b"plain: cannot run: Permission denied\n"),
    (["plain"], "/nowhere:file", 126, b"plain: cannot run: Not a directory\n"),
    (["only"], "first", 126, b"only: cannot run: Exec format error\n"),
    (["here"], "/nowhere:", 0, b"second ./here\n"),  # an empty folder is the one we are in
    (["./here"], "/nowhere", 0, b"second ./here\n"),
    (["here"], "/nowhere", 127, b"here: cannot run: No such file or directory\n"),
    (["./nothing"], "/bin", 127, b"./nothing: cannot run: No such file or directory\n"),
    (["/testbed"], "/bin", 126, b"/testbed: cannot run: Permission denied\n"),
    (["\udcff"], "/bin", 127, b"\\udcff: cannot run: No such file or directory\n"),
]


async def test_programs_are_looked_for_as_execvpe_does(box):
    assert (await box.exec(["sh", "-c", PROGRAMS], timeout_s=20)).stderr == b""
    for _ in range(2):
        for argv, path, code, said in LOOKED_FOR:
            result = await box.exec(argv, timeout_s=20, env={"PATH": path})
            assert (result.exit_code, (result.stdout + result.stderr)[: len(said)]) == (code, said)
        await box.start(["sleep", "1000"])  # the same beside others


async def test_a_folder_is_entered_with_the_agents_rights(box):
    await box.exec(["sh", "-c", PROGRAMS], timeout_s=20)
    for _ in range(2):
        assert (await box.exec(["pwd"], timeout_s=20, cwd="mine")).stdout == b"/testbed/mine\n"
        for folder, reason in (
            ("shut", "Permission denied"),
            ("/root", "Permission denied"),
            ("here", "Not a directory"),
        ):
            result = await box.exec(["pwd"], timeout_s=20, cwd=folder)
            said = f"pwd: cannot run in {folder!r}: {reason}\n".encode()
            assert (result.exit_code, result.stdout, result.stderr) == (126, b"", said)
        await box.start(["sleep", "1000"])


DISTURB = """
import os, sys
print("at it", flush=True)
while True:
    try:
        os.kill(-1, int(sys.argv[1]))  # all but itself and the runner
    except ProcessLookupError:
        pass
"""


async def test_who_kills_all_that_starts_kills_commands_and_nothing_else(box):
    number = await box.start(["python3", "-c", DISTURB, "9"])
    await said_by(box, number)
    for _ in range(40):
        result = await box.exec(["echo", "whole"], timeout_s=20)
        assert (result.exit_code, result.stderr) in ((0, b""), (-9, b""))
        assert result.exit_code or result.stdout == b"whole\n"
    other = await box.start(["sleep", "1000"])
    while (await box.output(other)).exit_code is None:
        pass
    assert (await box.output(other)).exit_code == -9
    await box.stop(number)
    assert (await box.exec(["echo", "whole"], timeout_s=20)).stdout == b"whole\n"


async def test_who_stops_all_that_starts_does_not_stop_the_box(box):
    number = await box.start(["python3", "-c", DISTURB, "19"])
    await said_by(box, number)
    for _ in range(10):
        result = await box.exec(["true"], timeout_s=0.2)
        assert (result.exit_code, result.stopped_by) in ((0, None), (None, "deadline"))
    await box.stop(number)
    assert (await box.exec(["echo", "whole"], timeout_s=20)).stdout == b"whole\n"


async def test_commands_leave_the_runner_no_descriptors(box):
    sleep = mark()
    number = await box.start(["sleep", sleep])
    [command] = await until(lambda: marked(sleep), "the command runs")
    runner = command.parent()
    await box.stop(number)
    held = []
    for _ in range(2):
        for _ in range(50):
            assert (await box.exec(["cat"], timeout_s=20, stdin=b"x")).stdout == b"x"
            assert (await box.exec(["no-such-program"], timeout_s=20)).exit_code == 127
            assert (await box.exec(["true"], timeout_s=20, cwd="/nowhere")).exit_code == 126
            await box.stop(await box.start(["true"]))
        held.append(runner.num_fds())
    assert held[0] == held[1] < 12
