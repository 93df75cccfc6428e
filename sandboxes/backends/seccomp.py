"""The system calls that commands in a box may not make, as a classic BPF program.

bubblewrap takes it (`--seccomp`); in a container the runner puts it on itself, and so on every command, above the
engine's own profile.

Modelled on what Docker's default profile refuses to a container without capabilities. Stricter in four points: `ptrace` and
`process_vm_*` are refused altogether, so is System V IPC, sockets are Unix, IPv4, IPv6 and netlink only, and a call that is
newer than this list does not exist (ENOSYS, so that the C library falls back to an older one). What seccomp(2) calls
`struct seccomp_data` is read here at fixed offsets; both architectures are little-endian.
"""

import base64
import errno
import os
import platform
import struct
from collections.abc import Iterator
from contextlib import contextmanager

from sandboxes.backends.base import BackendUnavailable

# struct seccomp_data
NUMBER, ARCHITECTURE = 0, 4
ARGUMENT = 16  # the low half of the first one; 8 bytes each

KILL, REFUSE, ALLOW = 0x80000000, 0x00050000, 0x7FFF0000  # SECCOMP_RET_KILL_PROCESS, _ERRNO, _ALLOW

LOAD, EQUAL, GREATER, AND_BITS, AND, RETURN = 0x20, 0x15, 0x25, 0x45, 0x54, 0x06  # BPF instructions, on 32-bit words

ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}  # AUDIT_ARCH_*, column of CALLS
X32 = 0x40000000  # the bit of the x32 ABI's numbers, which are calls of x86_64 under another name
NEWEST = 450  # set_mempolicy_home_node, Linux 5.17: the last call that was looked at

NAMESPACES = 0x7E020000  # CLONE_NEW{NS,CGROUP,UTS,IPC,USER,PID,NET}; clone has no room for CLONE_NEWTIME
FAMILIES = (1, 2, 10, 16)  # AF_UNIX, AF_INET, AF_INET6, AF_NETLINK
PERSONALITIES = (0, 0x0008, 0x20000, 0x20008, 0xFFFFFFFF)  # PER_LINUX, PER_LINUX32, either as 2.6; ask only
TERMINAL = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX: type into whatever terminal is ours

RUNNER = 1  # its process id in every box
WHOSE = {"setpriority": 0, "ioprio_set": 1}  # PRIO_PROCESS, IOPRIO_WHO_PROCESS: by process, not by group or user

# name: (number on x86_64, on aarch64); None where the architecture has no such call. From the kernel's unistd.h.
CALLS: dict[str, tuple[int | None, int | None]] = {
    # mounts and roots
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    # files by handle, past every path
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262),
    # namespaces
    "unshare": (272, 97),
    "setns": (308, 268),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    # other processes
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    # System V's shared things, which outlive the process that made them and so hold its box's memory
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    # keys, which no namespace parts
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    # kernel code, and what has often led into it
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "create_module": (174, None),
    "query_module": (178, None),
    "get_kernel_syms": (177, None),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "lookup_dcookie": (212, 18),
    "nfsservctl": (180, 42),
    "modify_ldt": (154, None),
    "ioperm": (173, None),
    "iopl": (172, None),
    "uselib": (134, None),
    "_sysctl": (156, None),
    "sysfs": (139, None),
    "ustat": (136, None),
    # the machine: clock, power, log, memory placement
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "reboot": (169, 142),
    "syslog": (103, 116),
    "acct": (163, 89),
    "vhangup": (153, 58),
    "mbind": (237, 235),
    "set_mempolicy": (238, 237),
    "get_mempolicy": (239, 236),
    "set_mempolicy_home_node": (450, 450),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
}
# Refused for some arguments only, by `_checks`.
CHECKED: dict[str, tuple[int, int]] = {
    "clone": (56, 220),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "personality": (135, 92),
    "ioctl": (16, 29),
    "prlimit64": (302, 261),
    "setpriority": (141, 140),
    "ioprio_set": (251, 30),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
}
CLONE3 = 435  # on both; its flags are in memory, where no filter can see them


def program(machine: str | None = None) -> bytes:
    """The filter for a machine (default: this one), 8 bytes an instruction. BackendUnavailable for one we have no numbers of."""
    machine = machine or platform.machine()
    if machine not in ARCHITECTURES:
        raise BackendUnavailable(
            f"bubblewrap boxes are filtered by system-call numbers of {' and '.join(ARCHITECTURES)}, and this machine is "
            f"{machine}: use Docker"
        )
    return b"".join(_instructions(*ARCHITECTURES[machine]))


def programs() -> dict[str, str]:
    """The filter for each machine we have numbers of, in base64: machine -> program. The box knows which it runs on."""
    return {machine: base64.b64encode(program(machine)).decode() for machine in ARCHITECTURES}


@contextmanager
def handed_over() -> Iterator[int]:
    """The filter as an open file that a box reads to its end, so each box needs one of its own."""
    file = os.memfd_create("seccomp")
    try:
        os.write(file, program())
        os.lseek(file, 0, os.SEEK_SET)
        yield file
    finally:
        os.close(file)


def _instructions(architecture: int, column: int) -> Iterator[bytes]:
    yield _step(LOAD, ARCHITECTURE)
    yield from _unless(EQUAL, architecture, KILL)
    yield _step(LOAD, NUMBER)
    yield from _when(AND_BITS, X32, KILL)
    yield from _when(GREATER, NEWEST, REFUSE | errno.ENOSYS)
    yield from _when(EQUAL, CLONE3, REFUSE | errno.ENOSYS)
    for numbers in CALLS.values():
        number = numbers[column]
        if number is not None:
            yield from _when(EQUAL, number, REFUSE | errno.EPERM)
    for name, pair in CHECKED.items():
        steps = [*_checks(name), _step(RETURN, ALLOW)]
        yield _step(EQUAL, pair[column], 0, len(steps))
        yield from steps
    yield _step(RETURN, ALLOW)


def _checks(name: str) -> Iterator[bytes]:
    """Steps that refuse a call for its arguments; what comes to their end is allowed."""
    refuse = REFUSE | errno.EPERM
    yield _load(0)
    if name == "clone":
        yield _step(AND, NAMESPACES)
        yield from _unless(EQUAL, 0, refuse)
    elif name in ("socket", "socketpair"):
        yield from _only(FAMILIES, REFUSE | errno.EAFNOSUPPORT)
    elif name == "personality":
        yield from _only(PERSONALITIES, refuse)
    elif name == "ioctl":
        yield _load(1)
        for request in TERMINAL:
            yield from _when(EQUAL, request, refuse)
    else:  # another process's limits and turns: not the runner's, which in bubblewrap has the commands' uid
        if name in WHOSE:
            yield from _unless(EQUAL, WHOSE[name], refuse)
            yield _load(1)
        yield from _when(EQUAL, RUNNER, refuse)


def _load(argument: int) -> bytes:
    return _step(LOAD, ARGUMENT + 8 * argument)


def _only(values: tuple[int, ...], verdict: int) -> Iterator[bytes]:
    """Allow these values and refuse all others."""
    for value in values:
        yield from _when(EQUAL, value, ALLOW)
    yield _step(RETURN, verdict)


def _when(test: int, value: int, verdict: int) -> Iterator[bytes]:
    yield _step(test, value, 0, 1)
    yield _step(RETURN, verdict)


def _unless(test: int, value: int, verdict: int) -> Iterator[bytes]:
    yield _step(test, value, 1, 0)
    yield _step(RETURN, verdict)


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    """One `struct sock_filter`; the jumps count instructions to leave out."""
    return struct.pack("<HBBI", code, if_true, if_false, value)
