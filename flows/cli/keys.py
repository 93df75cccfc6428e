"""`rotate-key`: a new operator key for a gateway, without a restart."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

console = Console()


def add_to(app: typer.Typer) -> None:
    app.command("rotate-key", rich_help_panel="Stack")(rotate_key)


@dataclass(frozen=True)
class Rotated:
    """A rotation and what a running gateway says to it. None: no gateway answers."""

    key_file: str
    gateway: str | None
    takes_new_key: bool | None = None
    refuses_old_key: bool | None = None


def rotate_key(
    home_folder: Annotated[
        Path | None, typer.Option("--home", help="The gateway's home folder; else LAKELOOP_HOME, else .lakeloop/.")
    ] = None,
    url: Annotated[
        str | None, typer.Option(help="The gateway to check with; else the stack's at LAKELOOP_GATEWAY_PORT.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
) -> None:
    """Replace the operator key of a home folder; the old one opens nothing from the next request on.

    A gateway that runs needs no restart, whatever the number of its workers, and the stack's own clients (flows, watcher,
    `lakeloop` commands) read the file again. Give programs of your own the new key, or let them read the file. The session
    keys of running agents are others and go on. The key itself is never shown.

    Exit status 1 where the gateway that answers does not take the new key: it belongs to another home folder.
    """
    from lakehouse.home import Home, home
    from sandboxes.gateway.sessions.keys import rotate
    from tasks.stack.settings import Settings

    file = (Home(home_folder.resolve()) if home_folder else home()).keys / "operator"
    if not file.exists():
        raise typer.BadParameter(f"there is no key to replace: {file} is made when a gateway is started first")
    old, new = file.read_text().strip(), rotate(file)
    told = _ask(url or Settings().gateway_url, file, old, new)
    if as_json:
        print(json.dumps(asdict(told)))
    else:
        console.print(_in_words(told), highlight=False, soft_wrap=True)
    if told.takes_new_key is False or told.refuses_old_key is False:
        raise typer.Exit(1)


def _ask(url: str, file: Path, old: str, new: str) -> Rotated:
    import httpx

    with httpx.Client(base_url=url, timeout=10, trust_env=False, verify=url.startswith("https")) as http:
        try:
            with_new, with_old = [
                http.get("/engines", headers={"Authorization": f"Bearer {key}"}).status_code for key in (new, old)
            ]
        except httpx.TransportError:
            return Rotated(str(file), None)
    return Rotated(str(file), url, takes_new_key=with_new == 200, refuses_old_key=with_old == 401)


def _in_words(told: Rotated) -> str:
    if told.gateway is None:
        said = "no gateway answers; the next one that is started uses it"
    elif not told.takes_new_key:
        said = (
            f"the gateway at {told.gateway} does not take it: it belongs to another home folder, see --home and --url"
        )
    elif not told.refuses_old_key:
        said = f"the gateway at {told.gateway} still takes the old key as well"
    else:
        said = f"the gateway at {told.gateway} takes it and refuses the old one"
    return f"new operator key in {told.key_file}\n{said}"
