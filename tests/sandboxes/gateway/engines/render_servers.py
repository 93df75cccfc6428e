"""vLLM's render-only servers, several from one import: run by the engine's Python, one child process per server.

Importing vLLM costs ten seconds of a core, serving a tokenizer and a template next to nothing. Arguments: a JSON list with
one list of command-line arguments per server. Ends its children when it ends.
"""

import importlib
import json
import os
import runpy
import signal
import sys

ENTRY = "vllm.entrypoints.launchers.render.entry"


def main() -> None:
    servers = json.loads(sys.argv[1])
    importlib.import_module(ENTRY)
    importlib.import_module("vllm.entrypoints.launchers.cli_args")
    children = []
    for arguments in servers:
        child = os.fork()
        if child == 0:
            sys.argv = [ENTRY, *arguments]
            runpy.run_module(ENTRY, run_name="__main__")
            os._exit(0)
        children.append(child)

    def end(*_: object) -> None:
        for child in children:
            os.kill(child, signal.SIGKILL)
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    for child in children:
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
