"""The filter as a program, for both architectures. That the kernel enforces it is tried in a box: test_conformance.py."""

import errno
import re
import struct
from pathlib import Path

import pytest

from sandboxes.backends.base import BackendUnavailable
from sandboxes.backends.seccomp import ALLOW, ARCHITECTURES, CALLS, CHECKED, KILL, REFUSE, program

EPERM, ENOSYS, NO_FAMILY = (REFUSE | code for code in (errno.EPERM, errno.ENOSYS, errno.EAFNOSUPPORT))


def judge(machine: str, call: int, *arguments: int, architecture: int | None = None) -> int:
    """What the filter returns: an interpreter of the classic BPF that seccomp(2) takes."""
    steps = list(struct.iter_unpack("<HBBI", program(machine)))
    own = ARCHITECTURES[machine][0]
    data = struct.pack("<IIQ6Q", call, own if architecture is None else architecture, 0, *[*arguments, *[0] * 6][:6])
    accumulator, at = 0, 0
    while True:
        code, if_true, if_false, value = steps[at]
        at += 1
        if code == 0x06:
            return value
        if code == 0x20:
            accumulator = struct.unpack_from("<I", data, value)[0]
        elif code == 0x54:
            accumulator &= value
        else:
            met = {0x15: accumulator == value, 0x25: accumulator > value, 0x45: bool(accumulator & value)}[code]
            at += if_true if met else if_false


@pytest.mark.parametrize(
    ("machine", "write", "mount", "clone", "socket"), [("x86_64", 1, 165, 56, 41), ("aarch64", 64, 40, 220, 198)]
)
def test_calls_are_judged_by_number_and_argument(machine, write, mount, clone, socket):
    assert judge(machine, write) == ALLOW
    assert judge(machine, mount) == EPERM
    assert judge(machine, 435) == judge(machine, 451) == judge(machine, 100_000) == ENOSYS
    assert judge(machine, clone, 0x01200011) == ALLOW  # fork
    assert judge(machine, clone, 0x003D0F00) == ALLOW  # a thread
    for namespace in (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000):
        assert judge(machine, clone, namespace | 17) == EPERM
    assert [judge(machine, socket, family) for family in (1, 2, 10, 16)] == [ALLOW] * 4
    assert [judge(machine, socket, family) for family in (17, 38, 40, 44)] == [NO_FAMILY] * 4


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_a_process_may_change_its_own_limits_and_turns_and_not_the_runners(machine):
    column = ARCHITECTURES[machine][1]
    for name in ("prlimit64", "sched_setparam", "sched_setscheduler", "sched_setaffinity", "sched_setattr"):
        call = CHECKED[name][column]
        assert [judge(machine, call, who) for who in (0, 7, 1)] == [ALLOW, ALLOW, EPERM], name
    for name, by_process in (("setpriority", 0), ("ioprio_set", 1)):
        call = CHECKED[name][column]
        assert [judge(machine, call, by_process, who) for who in (0, 7, 1)] == [ALLOW, ALLOW, EPERM], name
        assert [judge(machine, call, which, 0) for which in {0, 1, 2, 3} - {by_process}] == [EPERM] * 3, name


def test_other_architectures_and_the_x32_abi_are_killed():
    assert judge("x86_64", 1, architecture=0x40000003) == KILL  # i386, by int 0x80
    assert judge("x86_64", 0x40000000 + 1) == KILL
    assert judge("aarch64", 64, architecture=0x40000028) == KILL  # 32-bit ARM


def test_a_machine_without_numbers_is_told_to_use_docker():
    with pytest.raises(BackendUnavailable, match="this machine is riscv64: use Docker"):
        program("riscv64")


@pytest.mark.optional
@pytest.mark.skipif(not Path("/usr/include/asm-generic/unistd.h").exists(), reason="no kernel headers")
def test_numbers_are_the_kernel_headers():
    generic = Path("/usr/include/asm-generic/unistd.h").read_text()
    known = {name: int(n) for name, n in re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", generic)}
    for name, (_, number) in {**CALLS, **CHECKED}.items():
        assert known.get(name, number) == number, name
        assert (number is None) == (name not in known), name
