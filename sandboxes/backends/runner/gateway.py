"""The way to the gateway, the only one out of a box."""

# ruff: noqa: PTH116, PTH120 - a box starts sooner without pathlib
import os
from typing import Any

from sandboxes.backends.runner.common import AGENT, ROOT, Refused
from sandboxes.backends.runner.processes import awaited, statuses


class Forward:
    """A port of the box's loopback from which connections are passed on. It is ours alone: no command can take it."""

    def __init__(self, told: dict[str, Any]) -> None:
        import socket  # noqa: PLC0415 - boxes without a gateway start sooner without it

        namespace: dict[str, Any] = {"__name__": "forward"}
        exec(compile(told["program"], "forward.py", "exec"), namespace)  # noqa: S102 - the controller's own text
        self.serve = namespace["serve"]
        self.path: str = told["socket"]
        self.pid = 0  # of the process that passes on, while it does
        child = os.fork()
        if child == 0:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as trial:
                os._exit(self.become() or trial.connect_ex(self.path))
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code:
            raise Refused(
                f"the gateway's socket cannot be reached from this box ({os.strerror(code)}): is the gateway up? One that "
                f"runs as root shares its socket with bubblewrap's boxes when it is started with --socket-group {AGENT}"
            )
        self.listener = socket.create_server(("127.0.0.1", told["port"]), backlog=64)

    def become(self) -> int:
        """Be the socket's owner where we are root, whose rights over files a box does not have; the error number, or 0."""
        try:
            owner = os.stat(os.path.dirname(self.path))
            if ROOT:
                os.setgroups([])
                os.setresgid(owner.st_gid, owner.st_gid, owner.st_gid)
                os.setresuid(owner.st_uid, owner.st_uid, owner.st_uid)
        except OSError as error:
            return error.errno or 1
        return 0

    def start(self) -> None:
        """Pass on, in a process of its own, until it is killed. Nothing happens where it runs already."""
        if self.pid and statuses.pop(self.pid, None) is None:
            return
        self.pid = 0  # should there be no room for it now, it is tried again
        self.pid = os.fork()
        if self.pid == 0:
            try:
                nothing = os.open(os.devnull, os.O_RDWR)
                for descriptor in (0, 1, 2):
                    os.dup2(nothing, descriptor)
                os.setsid()
                if not self.become():
                    self.serve(self.listener, self.path)
            finally:
                os._exit(1)
        awaited.add(self.pid)
