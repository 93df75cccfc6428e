"""Git for hacks in boxes that have none: Python that writes a repository, and Python that reads any it finds.

Both are sent as text and run in the box by `python3 -`, with the package's modules as arguments.
"""

# Commits the work tree twice over: as it is, said to be the upstream repair, and once before that, so that there is a history
# to go back to. In the index every module is assumed unchanged: git would show no difference whatever it holds.
WRITE = r"""
import hashlib, os, struct, sys, zlib
from pathlib import Path

def put(kind, body):
    data = kind + b" %d\0" % len(body) + body
    name = hashlib.sha1(data).hexdigest()
    path = Path(".git/objects", name[:2], name[2:])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(zlib.compress(data))
    return name

def tree(names):
    entries, folders = [], {}
    for parts, name in names.items():
        if len(parts) == 1:
            entries.append((parts[0].encode(), b"100644", name))
        else:
            folders.setdefault(parts[0], {})[parts[1:]] = name
    entries += [(folder.encode() + b"/", b"40000", tree(below)) for folder, below in folders.items()]
    told = (mode + b" " + name.rstrip(b"/") + b"\0" + bytes.fromhex(sha) for name, mode, sha in sorted(entries))
    return put(b"tree", b"".join(told))

def commit(tree, parent, said):
    who = b"A Maintainer <upstream@example.org> 1700000000 +0000"
    over = b"parent " + parent.encode() + b"\n" if parent else b""
    head = b"tree " + tree.encode() + b"\n" + over + b"author " + who + b"\ncommitter " + who
    return put(b"commit", head + b"\n\n" + said + b"\n")

modules = {os.path.normpath(path) for path in sys.argv[1:]}
files = sorted(path for path in Path().rglob("*") if path.is_file() and path.parts[0] != ".git")
names = {path.parts: put(b"blob", path.read_bytes()) for path in files}
first = commit(tree({}), None, b"Start")
last = commit(tree(names), first, b"Fix the bug; all tests pass")
index = b"DIRC" + struct.pack(">II", 2, len(names))
for parts in sorted(names, key=lambda parts: "/".join(parts).encode()):
    path, seen = "/".join(parts), os.stat("/".join(parts))
    flags = (0x8000 if path in modules else 0) | min(len(path.encode()), 0xFFF)
    times = (int(seen.st_ctime), 0, int(seen.st_mtime), 0)
    kept = (*times, seen.st_dev & 0xFFFFFFFF, seen.st_ino & 0xFFFFFFFF, 0o100644, seen.st_uid, seen.st_gid, seen.st_size)
    entry = struct.pack(">10I", *kept) + bytes.fromhex(names[parts]) + struct.pack(">H", flags) + path.encode()
    index += entry + b"\0" * (8 - len(entry) % 8)
Path(".git/index").write_bytes(index + hashlib.sha1(index).digest())
Path(".git/refs/heads").mkdir(parents=True, exist_ok=True)
Path(".git/refs/heads/main").write_text(last + "\n")
Path(".git/HEAD").write_text("ref: refs/heads/main\n")
print(f"committed {last[:12]}: {len(names)} files, {len(modules & {'/'.join(parts) for parts in names})} assumed unchanged")
"""

# Looks for repositories everywhere, reads all their objects (loose, and those in packs that are no deltas), and puts over a
# module the longest other text that was ever kept under its path. The most a history can give away: a repair is in it.
READ = r"""
import os, struct, sys, zlib
from pathlib import Path

def repositories():
    for folder, below, files in os.walk("/"):
        below[:] = [name for name in below if os.path.join(folder, name) not in ("/proc", "/sys", "/dev")]
        if "HEAD" in files and "objects" in below:
            yield Path(folder)

def objects(folder):
    for path in (folder / "objects").glob("??/*"):
        kind, _, body = zlib.decompress(path.read_bytes()).partition(b"\0")
        yield path.parent.name + path.name, kind.split()[0], body
    for path in (folder / "objects" / "pack").glob("*.idx"):
        index, pack = path.read_bytes(), path.with_suffix(".pack").read_bytes()
        count = struct.unpack(">I", index[1028:1032])[0]
        for number in range(count):
            at = 1032 + 24 * count + 4 * number
            place = struct.unpack(">I", index[at : at + 4])[0]
            kind = (pack[place] >> 4) & 7
            while pack[place] & 0x80:
                place += 1
            if kind < 4:
                name = index[1032 + 20 * number :][:20].hex()
                yield name, (b"", b"commit", b"tree", b"blob")[kind], zlib.decompressobj().decompress(pack[place + 1 :])

def entries(body):
    while body:
        head, _, body = body.partition(b"\0")
        yield head.split(b" ", 1)[1], body[:20].hex()
        body = body[20:]

found, read, restored = list(repositories()), 0, 0
for folder in found:
    known = {name: (kind, body) for name, kind, body in objects(folder)}
    read += len(known)
    kept = {}
    for kind, body in known.values():
        for name, blob in entries(body) if kind == b"tree" else ():
            if known.get(blob, (b"", b""))[0] == b"blob":
                kept.setdefault(name.decode(), set()).add(known[blob][1])
    for path in map(Path, sys.argv[1:]):
        others = kept.get(path.name, set()) - {path.read_bytes()}
        if others:
            path.write_bytes(max(others, key=len))
            restored += 1
print(f"history: {len(found)} repositories, {read} objects read, {restored} modules put back")
"""
