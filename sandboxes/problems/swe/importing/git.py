"""Trees out of local clones, and patches put into trees, by git itself. No network, and nothing of a repository is run."""

import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from sandboxes.problems.foreign import BadRow

TIMEOUT_S = 120.0
REGULAR = ("100644", "100755")  # modes; links and submodules are left out


class Clones:
    """A folder of clones or bare mirrors, named `owner__name`, `owner/name` or `name`, with or without `.git`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._trees: dict[tuple[Path, str], dict[str, bytes]] = {}

    def find(self, *names: str) -> Path:
        """The first clone that has one of these names. BadRow names all that were looked for."""
        there = {path.name.removesuffix(".git"): path for path in sorted(self.folder.iterdir()) if _is_repository(path)}
        for name in names:
            owner, _, short = name.rpartition("/")
            nested = [
                path for path in (self.folder / name, self.folder / f"{name}.git") if owner and _is_repository(path)
            ]
            same = [path for known, path in there.items() if not owner and known.endswith(f"__{name}")]
            found = [there[form] for form in (name.replace("/", "__"), short) if form in there] or nested or same
            if len(found) > 1 and found is same:
                raise BadRow(
                    f"{name} may be any of {', '.join(path.name for path in found)} in {self.folder}: keep one"
                )
            if found and found[0].resolve().is_relative_to(self.folder.resolve()):
                return found[0]
        raise BadRow(
            f"no clone of {names[0]} in {self.folder}: clone it there as {names[0].replace('/', '__')}, "
            "or give another folder with --repos"
        )

    def tree(self, clone: Path, commit: str) -> dict[str, bytes]:
        """Every regular file at a commit: path -> content. BadRow where the clone does not have it."""
        key = (clone, commit)
        if key not in self._trees:
            self._trees = {key: _tree(clone, commit)}  # rows come sorted by repository: the last one is worth keeping
        return dict(self._trees[key])


def applied(patch: str, tree: Mapping[str, bytes], *, what: str) -> dict[str, bytes]:
    """The tree with a unified diff in it. BadRow where it does not apply; git keeps it inside of the tree."""
    if not patch.strip():
        return dict(tree)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for path, content in tree.items():
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        done = _git(["apply", "--whitespace=nowarn", "-"], folder, (patch.rstrip("\n") + "\n").encode())
        if done.returncode != 0:
            raise BadRow(f"{what} does not apply: {_said(done)}. It must be a unified diff against that very commit")
        return {
            str(file.relative_to(folder)): file.read_bytes()
            for file in sorted(folder.rglob("*"))
            if file.is_file() and not file.is_symlink()
        }


def _is_repository(path: Path) -> bool:
    return (path / ".git").exists() or (path / "HEAD").is_file()


def _tree(clone: Path, commit: str) -> dict[str, bytes]:
    if commit.startswith("-"):
        raise BadRow(f"{commit!r} is no commit")
    listed = _git(["ls-tree", "-r", "-z", "--full-tree", commit], clone)
    if listed.returncode != 0:
        raise BadRow(f"{clone.name} has no commit {commit}: fetch it there. git said: {_said(listed)}")
    entries = [entry.partition("\t") for entry in listed.stdout.decode(errors="surrogateescape").split("\0") if entry]
    blobs = {path: about.split()[2] for about, _, path in entries if about.split()[0] in REGULAR}
    read = _git(["cat-file", "--batch"], clone, "".join(f"{blob}\n" for blob in blobs.values()).encode())
    if read.returncode != 0:
        raise BadRow(f"{clone.name} cannot be read at {commit}: {_said(read)}")
    tree, at = {}, 0
    for path in blobs:
        end = read.stdout.index(b"\n", at)
        header = read.stdout[at:end].split()
        if len(header) != 3:
            raise BadRow(f"{clone.name} lacks the content of {path} at {commit}: it is a partial clone, fetch it whole")
        size = int(header[2])
        tree[path] = read.stdout[end + 1 : end + 1 + size]
        at = end + 2 + size
    return tree


def _git(arguments: list[str], cwd: Path, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """git, with nobody's configuration but the safe defaults. BadRow after a deadline."""
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_ALLOW_PROTOCOL": "none",  # what git of before 2.45 knows of the line above
        "GIT_CEILING_DIRECTORIES": str(cwd.parent),
        "HOME": os.devnull,
        "LC_ALL": "C.UTF-8",
    }
    command = ["git", "-c", "safe.directory=*", "-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}"]
    try:
        return subprocess.run(
            [*command, *arguments],
            cwd=cwd,
            input=stdin,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
            env=environment,
        )
    except subprocess.TimeoutExpired as error:
        raise BadRow(f"git {arguments[0]} in {cwd.name} took more than {TIMEOUT_S:.0f} s") from error


def _said(done: subprocess.CompletedProcess[bytes]) -> str:
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    return lines[-1].removeprefix("fatal: ").removeprefix("error: ") if lines else f"exit status {done.returncode}"
