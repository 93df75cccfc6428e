"""`python -m sandboxes.gateway --engine URL --home DIR --model NAME`: run the gateway until a signal ends it."""

import argparse
import sys
from pathlib import Path

import uvicorn
from pydantic import ValidationError

from sandboxes.gateway.app import Gateway
from sandboxes.gateway.engines_orders import Orders
from sandboxes.gateway.journal import JournalError
from sandboxes.gateway.listen import bind, config, url_of
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
        help="an engine host beyond this machine; may be repeated",
    )
    parser.add_argument("--max-sessions", type=int, default=256)
    parser.add_argument("--max-calls", type=int, default=256)
    parser.add_argument("--call-deadline", type=float, default=600.0, dest="call_deadline_s", metavar="SECONDS")
    return parser.parse_args()


def main() -> int:
    """Exit status: 0 after a signal, 1 where it cannot start (the reason in one line on stderr)."""
    given = vars(arguments())
    host, port = given.pop("host"), given.pop("port")
    given["engine"], *given["more_engines"] = given.pop("engines")
    try:
        settings = Settings(**given)
        bound = bind(host, port)  # before the journal is opened: a second gateway on one home must not touch it
        Orders(settings.orders).forget()
        gateway = Gateway(settings)
    except (ValidationError, ValueError, *JournalError) as error:
        print(f"gateway: {error}", file=sys.stderr)
        return 1
    print(f"gateway: {url_of(bound)} -> {', '.join(settings.engines)} ({settings.model})", flush=True)
    uvicorn.Server(config(gateway.app())).run(sockets=[bound])
    return 0


if __name__ == "__main__":
    sys.exit(main())
