"""`python -m sandboxes.gateway --engine URL --home DIR --model NAME`: run the gateway until a signal ends it.

For programs; people use `lakeloop gateway`, which says more.
"""

import argparse
import sys
from pathlib import Path

from pydantic import ValidationError

from sandboxes.gateway.server.serve import Place, run
from sandboxes.gateway.settings import Settings


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m sandboxes.gateway", description=__doc__)
    parser.add_argument(
        "--engine",
        required=True,
        action="append",
        dest="engines",
        metavar="URL",
        help="base URL of an engine; may be repeated for engines with the same model, version and chat template",
    )
    parser.add_argument("--model", required=True, help="the served model's name")
    parser.add_argument(
        "--home", required=True, type=Path, help="home folder: keys/operator and gateway/journal.db are kept there"
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8900, help="0 takes a free one; the URL is printed")
    parser.add_argument(
        "--allow-upstream",
        action="append",
        default=[],
        metavar="HOST",
        help="a host name, address or network of engines beyond this machine; may be repeated",
    )
    parser.add_argument(
        "--token-route",
        choices=["auto", "generate", "chat"],
        default="auto",
        help="how tokens are had: over the engine's token routes, over chat completions with ids, or what it has",
    )
    parser.add_argument("--max-sessions", type=int, default=256)
    parser.add_argument("--max-calls", type=int, default=256)
    parser.add_argument(
        "--max-mask-fraction",
        type=float,
        default=0.5,
        metavar="SHARE",
        help="start no more sessions where more of the last 20 were lost to training; 1 never stops",
    )
    parser.add_argument(
        "--model-key-rewards",
        action="store_true",
        help="a session's model key may give rewards, as with AReaL: not for agents that could reward themselves",
    )
    parser.add_argument("--call-deadline", type=float, default=600.0, dest="call_deadline_s", metavar="SECONDS")
    parser.add_argument("--drain", type=float, default=8.0, dest="drain_s", metavar="SECONDS")
    parser.add_argument("--workers", type=int, default=1, metavar="N")
    parser.add_argument("--tls-cert", type=Path)
    parser.add_argument("--tls-key", type=Path)
    parser.add_argument(
        "--socket",
        type=Path,
        metavar="PATH",
        help="also listen on a Unix socket, alone in its folder, which boxes are shown; only model keys open anything there",
    )
    parser.add_argument(
        "--socket-group", type=int, metavar="GID", help="a group that may use the socket beside its owner"
    )
    return parser.parse_args()


def main() -> int:
    """Exit status: 0 after a signal, 1 where it cannot start (the reason in one line on stderr)."""
    given = vars(arguments())
    where = {
        name: given.pop(name)
        for name in ("host", "port", "drain_s", "workers", "tls_cert", "tls_key", "socket", "socket_group")
    }
    given["engine"], *given["more_engines"] = given.pop("engines")
    try:
        place = Place(settings=Settings(**given), **where)
    except ValidationError as error:
        print(f"gateway: {'; '.join(one['msg'] for one in error.errors())}", file=sys.stderr)
        return 1
    return run(place)


if __name__ == "__main__":
    sys.exit(main())
