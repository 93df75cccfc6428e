"""The network of a box: a loopback interface of its own, and nothing else."""

import socket

import pytest

pytestmark = pytest.mark.asyncio(loop_scope="module")

REACH = """
import errno, os, socket, struct, sys
def tries(what, make):
    try:
        make()
        print(what)
    except OSError:
        pass
def tcp(family, *address):
    with socket.socket(family, socket.SOCK_STREAM) as s:
        s.settimeout(3); s.connect(address)
def udp(family, *address):
    with socket.socket(family, socket.SOCK_DGRAM) as s:
        s.sendto(b"x", address)
def raw(kind, family, protocol):
    socket.socket(family, kind, protocol).close()
port = int(sys.argv[1])
for address in ("192.0.2.1", "169.254.169.254", "10.0.0.1", "172.17.0.1", "8.8.8.8"):
    tries(f"tcp {address}", lambda: tcp(socket.AF_INET, address, 80))
    tries(f"udp {address}", lambda: udp(socket.AF_INET, address, 53))
for address in ("2001:db8::1", "fe80::1", "ff02::1"):
    tries(f"tcp6 {address}", lambda: tcp(socket.AF_INET6, address, 80))
tries("the host's loopback", lambda: tcp(socket.AF_INET, "127.0.0.1", port))
def abstract():
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(3); s.connect("\\0" + sys.argv[2])
for name in ("/run/docker.sock", "/var/run/docker.sock", "/run/systemd/private", "/run/dbus/system_bus_socket"):
    def connect(name=name):
        with socket.socket(socket.AF_UNIX) as s: s.connect(name)
    tries(name, connect)
tries("the host's abstract socket", abstract)
tries("raw icmp", lambda: raw(socket.SOCK_RAW, socket.AF_INET, socket.IPPROTO_ICMP))
tries("raw ip", lambda: raw(socket.SOCK_RAW, socket.AF_INET, socket.IPPROTO_RAW))
tries("packet", lambda: raw(socket.SOCK_RAW, 17, 3))
tries("vsock", lambda: raw(socket.SOCK_STREAM, 40, 0))
tries("crypto", lambda: raw(socket.SOCK_SEQPACKET, 38, 0))
def ping():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP) as s:
        s.sendto(bytes([8] + [0] * 7), ("192.0.2.1", 0))
tries("ping", ping)
def link_up():  # RTM_NEWLINK over netlink: make an interface
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as s:
        body = bytes(16) + b"\\x08\\x00\\x03\\x00eth0" + b"\\x10\\x00\\x12\\x00\\x09\\x00\\x01\\x00dummy\\0\\0\\0"
        s.send(struct.pack("<IHHQ", 16 + len(body), 16, 0x605, 0) + body)
        answer = s.recv(4096)
        code = int.from_bytes(answer[16:20], "little", signed=True)
        if code: raise OSError(-code, "refused")
tries("new interface", link_up)
for protocol in (2, 9, 12):  # of the host's: usersock, audit, netfilter's log
    def spy(protocol=protocol):
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol) as s:
            s.bind((0, 1)); s.settimeout(0.2); s.recv(100)
    tries(f"netlink {protocol}", spy)
# Some kernels make these in each namespace, down.
idle = ("lo", "tunl0", "sit0", "gre0", "gretap0", "erspan0", "ip6tnl0", "ip6gre0", "ip_vti0", "ip6_vti0")
print([name for _, name in socket.if_nameindex() if name not in idle])
try:
    socket.getaddrinfo("example.org", 443)
    print("names are resolved")
except OSError:
    pass
with socket.create_server(("127.0.0.1", 0)) as s, socket.create_connection(s.getsockname()):
    print("own loopback")
"""


async def test_no_kind_of_socket_leads_out(shared, attack):
    abstract = "lakeloop-test-outside"
    with socket.create_server(("127.0.0.1", 0)) as outside, socket.socket(socket.AF_UNIX) as named:
        named.bind("\0" + abstract)
        named.listen()
        said = await attack(shared, REACH, str(outside.getsockname()[1]), abstract, timeout_s=90)
    assert said == ["[]", "own loopback"]


INTERFACES = """
lines = open("/proc/net/dev").read().splitlines()[2:]
print(sum(int(line.split()[9]) for line in lines if "lo:" not in line))
"""


async def test_nothing_was_sent_by_any_interface_but_loopback(shared, attack):
    assert await attack(shared, INTERFACES) == ["0"]
