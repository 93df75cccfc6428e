"""What a command may ask of the kernel: rights, mounts, namespaces, other processes, the clock, the host's files."""

import json
import platform

import pytest

from sandboxes.backends.seccomp import CALLS, CHECKED, CLONE3, NEWEST

pytestmark = pytest.mark.asyncio(loop_scope="module")

COLUMN = {"x86_64": 0, "aarch64": 1}.get(platform.machine())
CALL = """
import ctypes, errno, json, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    ctypes.set_errno(0)
    said = libc.syscall(*[ctypes.c_long(value) for value in (number, *arguments, *[0] * 6)][:7])
    return errno.errorcode[ctypes.get_errno()] if said == -1 else "done"
"""


@pytest.fixture(autouse=True)
def numbers():
    """The numbers of system calls here."""
    if COLUMN is None:
        pytest.skip(f"no system-call numbers of {platform.machine()}")
    return {name: pair[COLUMN] for name, pair in CALLS.items() if pair[COLUMN] is not None}


EACH = "for name, number in json.load(sys.stdin).items(): print(name, call(number))"


async def test_every_refused_call_is_refused(shared, attack, numbers):
    said = await attack(shared, CALL + EACH, stdin=json.dumps(numbers).encode())
    assert len(said) == len(numbers)
    assert [line for line in said if line.split()[1] not in ("EPERM", "ENOSYS")] == []


ARGUMENTS = """
clone, clone3, personality, socket, newest, ioctl = map(int, sys.argv[1:])
for bit in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
    if (said := call(clone, bit | 17)) != "EPERM": print("clone", hex(bit), said)
for number in (clone3, newest + 1, 5000):
    if (said := call(number)) != "ENOSYS": print(number, said)
for how in (0x0040000, 0x0010, 0x8000000):  # ADDR_NO_RANDOMIZE, another system's
    if (said := call(personality, how)) != "EPERM": print("personality", hex(how), said)
for family in (3, 17, 21, 29, 31, 38, 40, 44):  # ax25, packet, rds, can, bluetooth, crypto, vsock, xdp
    for kind in (1, 2, 3, 5):
        if (said := call(socket, family, kind)) == "done": print("socket", family, kind)
for request in (0x5412, 0x541C, 0x5412 | 1 << 32):
    if (said := call(ioctl, 1, request)) != "EPERM": print("ioctl", request, said)
print(call(personality, 0xFFFFFFFF), os.fork() >= 0)
"""


async def test_calls_are_refused_by_their_arguments(shared, attack):
    clone, personality, made, ioctl = (CHECKED[name][COLUMN] for name in ("clone", "personality", "socket", "ioctl"))
    said = await attack(shared, CALL + ARGUMENTS, *map(str, (clone, CLONE3, personality, made, NEWEST, ioctl)))
    assert set(said) == {"done True"}


FOREIGN = """
import ctypes, mmap, os, signal
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(bytes.fromhex({code!r}))
if os.fork() == 0:
    ctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
    os._exit(0)
print(signal.Signals(-os.waitstatus_to_exitcode(os.wait()[1])).name)
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="machine code for x86-64")
@pytest.mark.parametrize(
    "code",
    [
        pytest.param("53 b814000000 cd80 5b c3", id="getpid as i386, by int 0x80"),
        pytest.param("b827000040 0f05 c3", id="getpid of the x32 ABI"),
    ],
)
async def test_another_architectures_calls_are_the_end_of_the_process(shared, attack, code):
    assert await attack(shared, FOREIGN.format(code=code)) == ["SIGSYS"]


SETUID = """
import ctypes, os, shutil, subprocess
for call in ("setuid", "seteuid", "setgid", "setegid"):
    try:
        getattr(os, call)(0)
        print(call)
    except OSError:
        pass
try:
    os.setgroups([0])
    print("setgroups")
except OSError:
    pass
shutil.copy("/usr/bin/id", "/tmp/id")
os.chmod("/tmp/id", 0o6755)  # of our own uid; a host's root would have to follow it
print(subprocess.run(["/tmp/id", "-u"], capture_output=True, text=True).stdout.strip())
for name in ("su", "mount", "newgrp", "passwd", "chsh"):
    path = shutil.which(name)
    if path and subprocess.run([path, "--help"], capture_output=True).returncode == 0 and os.stat(path).st_mode & 0o4000:
        print(subprocess.run(["sh", "-c", f"echo | {path} -c id"], capture_output=True, text=True).stdout.strip(), end="")
try:
    os.setxattr("/tmp/id", "security.capability", bytes.fromhex("0000000201000000000000000000000000000000"))
    print("file capability")
except OSError:
    pass
print(open("/proc/self/status").read().count("NoNewPrivs:\\t1"))
"""


async def test_rights_cannot_be_won_by_setuid_programs_or_capabilities(shared, attack):
    assert await attack(shared, SETUID) == ["1000", "1"]
    status = await shared.exec(["grep", "-E", "Cap(Inh|Prm|Eff|Amb)", "/proc/self/status"], timeout_s=20)
    assert status.stdout.split()[1::2] == [b"0" * 16] * 4
    found = await shared.exec(["find", "/", "-xdev", "-perm", "-4000", "-user", "root"], timeout_s=60)
    assert found.exit_code in (0, 1)  # there may be some: without new privileges they give nothing


MOUNTS = """
import ctypes, os, shutil, subprocess
libc = ctypes.CDLL(None, use_errno=True)
for source, target, kind, flags in [
    (b"none", b"/tmp", b"tmpfs", 0), (b"/usr", b"/tmp", None, 4096), (b"proc", b"/tmp", b"proc", 0),
    (b"none", b"/", None, 32), (b"none", b"/dev/shm", b"cgroup", 0), (b"none", b"/tmp", b"overlay", 0),
]:
    if libc.mount(source, target, kind, flags, None) == 0: print("mount", target, kind)
for target in (b"/proc", b"/testbed", b"/tmp", b"/dev"):
    if libc.umount2(target, 2) == 0: print("umount", target)
for arguments in (["unshare", "--user", "--map-root-user", "id"], ["unshare", "--mount", "id"], ["unshare",
    "--pid", "--fork", "id"],
                  ["nsenter", "--target", "1", "--all", "id"]):
    if shutil.which(arguments[0]) and subprocess.run(arguments, capture_output=True).returncode == 0: print(arguments)
if libc.chroot(b"/tmp") == 0: print("chroot")
"""


async def test_nothing_is_mounted_and_no_namespace_made_or_entered(shared, attack):
    assert await attack(shared, MOUNTS) == []


RUNNER = """
import ctypes, glob, os, signal, socket
libc = ctypes.CDLL(None, use_errno=True)
for request in (16, 0x4206):  # ATTACH, SEIZE
    if libc.ptrace(request, 1, 0, 0) == 0: print("traced")
for path in ["/proc/1/mem", "/proc/1/environ", "/proc/1/maps", "/proc/1/auxv", "/proc/1/oom_score_adj", "/proc/1/clear_refs",
             "/proc/1/coredump_filter", "/proc/1/comm", "/proc/1/timerslack_ns", *(f"/proc/1/fd/{n}" for n in range(16)),
             *(f"/proc/1/task/1/fd/{n}" for n in range(3))]:
    for flags in (os.O_RDONLY, os.O_WRONLY):
        if flags == os.O_RDONLY and path.rpartition("/")[2] in ("oom_score_adj", "comm", "coredump_filter"):
            continue  # everybody may read these
        try:
            with open(os.open(path, flags), "rb" if flags == os.O_RDONLY else "wb", buffering=0) as file:
                file.read(1) if flags == os.O_RDONLY else file.write(b"0")
            print("opened", path, flags)
        except OSError:
            pass
for path in ("/proc/1/fd", "/proc/1/map_files", "/proc/1/cwd", "/proc/1/root/etc"):
    try:
        print("listed", path, os.listdir(path))
    except OSError:
        pass
for number in range(1, 65):
    try:
        os.kill(1, number)
    except OSError:
        pass
for limit in range(16):  # CPU: the kernel would kill it; NOFILE, AS, FSIZE: it could do nothing more
    if libc.prlimit(1, limit, (ctypes.c_ulong * 2)(0, 0), None) == 0: print("limited", limit)
for which in (0, 1, 2):
    for who in (1, 0 if which == 1 else 1, os.getuid()):
        if libc.setpriority(which, who, 19) == 0: print("slowed", which, who)
try:
    os.sched_setaffinity(1, {0})
    print("pinned")
except OSError:
    pass
"""


async def test_the_runner_cannot_be_traced_read_written_to_signalled_or_starved(shared, attack):
    assert await attack(shared, RUNNER) == []
    assert await shared.read("pkg/core.py") == b"ONE = 1\n"


FORGE = """
import os
reply = b'{"ok": true, "exit_code": 0, "stdout": {"head": 6, "tail": 0, "dropped": 0}, "payload": 6}\\nforged'
for n in range(3, 256):  # an end of the runner's streams that was left open for us
    try:
        os.write(n, reply)
        print("wrote to", n)
    except OSError:
        pass
print(os.listdir("/proc/self/fd"))
"""


async def test_a_command_has_no_descriptor_but_its_own_three(shared, attack):
    assert await attack(shared, FORGE) == ["['0', '1', '2', '3']"]  # the last is the listing itself


DEVICES = """
import os, stat
for kind, major, minor in [(stat.S_IFBLK, 8, 0), (stat.S_IFBLK, 254, 0), (stat.S_IFCHR, 1, 1), (stat.S_IFCHR,
    5, 1), (stat.S_IFCHR, 10, 200)]:
    for folder in ("/tmp", "/testbed", "/dev/shm"):
        try:
            os.mknod(f"{folder}/node", kind | 0o666, os.makedev(major, minor))
            print("made", folder, major, minor)
        except OSError:
            pass
plain = {"null", "zero", "full", "random", "urandom", "tty", "ptmx", "console", "fd", "stdin", "stdout", "stderr", "core"}
for folder, _, names in os.walk("/dev"):
    for name in names:
        mode = os.lstat(f"{folder}/{name}").st_mode
        if name not in plain and (stat.S_ISBLK(mode) or stat.S_ISCHR(mode)) and not folder.startswith("/dev/pts"):
            print("device", folder, name)
"""


async def test_a_crash_starts_no_program_of_the_hosts(shared):
    # With a limit of 0 a `core_pattern` that begins with a pipe is run all the same, by the host's root.
    limits = await shared.exec(["grep", "core file", "/proc/self/limits"], timeout_s=20)
    assert limits.stdout.split()[-3:-1] == [b"1", b"1"]


async def test_there_are_no_devices_and_none_can_be_made(shared, attack):
    assert await attack(shared, DEVICES) == []


CLOCK = """
import ctypes, time
libc = ctypes.CDLL(None, use_errno=True)
now = (ctypes.c_long * 2)(1, 0)
before = time.time()
print(libc.clock_settime(0, now), libc.settimeofday(now, None), libc.adjtime(now, None))
print(abs(time.time() - before) < 60)
"""


async def test_the_clock_cannot_be_set(shared, attack):
    assert await attack(shared, CLOCK) == ["-1 -1 -1", "True"]


HOST = """
import os, sys
for path in [sys.argv[1], "/etc/shadow", "/proc/1/root/etc/shadow", "/proc/kcore", "/proc/kmsg", "/dev/mem",
    "/dev/kmsg", "/proc/sysrq-trigger",
             "/var/run/docker.sock", "/run/docker.sock", "/proc/1/cwd/../etc/shadow", "/sys/kernel/security",
                 "/proc/timer_list"]:
    try:
        with open(path, "rb") as file:
            if file.read(1): print("read", path)
    except OSError:
        pass
for path in ["/x", "/usr/bin/x", "/etc/passwd", "/dev/x", "/run/x", "/proc/sys/kernel/hostname",
    "/proc/sys/kernel/core_pattern",
             "/proc/sysrq-trigger", "/sys/fs/cgroup/x", "/sys/kernel/mm/ksm/run",
             "/proc/acpi/wakeup", "/proc/irq/0/x"]:
    try:
        with open(path, "ab") as file:
            file.write(b"1"); file.flush()
        print("wrote", path)
    except OSError:
        pass
"""


async def test_the_hosts_files_are_not_there_and_the_root_cannot_be_written(shared, attack, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("host")
    secret.chmod(0o644)
    assert await attack(shared, HOST, str(secret)) == []
