"""PID 1 of every box: runs commands and touches files on the controller's behalf.

The modules here run inside the box, on the standard library alone; the controller sends their text to the box's Python, so a
box needs no file of ours. A message is one JSON line, followed by as many raw bytes as its `payload` says; requests come on
stdin, each has one reply on stdout. Where the runner is root, commands and file operations run as uid 1000. When a request is
served, nothing of earlier commands is alive but background processes. End of stdin or of the lease ends the box.
"""

from importlib import resources

PARTS = (
    "common",
    "output",
    "processes",
    "gateway",
    "background",
    "channel",
    "command",
    "files",
    "main",
)  # no import back

# Each part under its full name, so that the parts import each other as they do here.
START = """
import sys
for name, text in PARTS:
    name = "{package}." + name
    part = sys.modules[name] = type(sys)(name)
    exec(compile(text, name, "exec"), part.__dict__)
part.main()
"""


# Not on the command line itself, which every `ps` in the box would show.
LOAD = (
    "import os; text = b''\nwhile len(text) < {size}: text += os.read(0, {size} - len(text)) or os._exit(0)\nexec(text)"
)


def program() -> bytes:
    """The runner as one text: the first that the process of `command` must be sent."""
    folder = resources.files(__name__)
    texts = [(part, folder.joinpath(f"{part}.py").read_text(encoding="utf-8")) for part in PARTS]
    return (f"PARTS = {texts!r}" + START.format(package=__name__)).encode()


def command() -> list[str]:
    """The command of PID 1, less its Python: it reads the program from stdin, then its requests."""
    return ["-I", "-S", "-c", LOAD.format(size=len(program()))]
