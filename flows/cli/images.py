"""`lakeloop images`: the file systems that boxes see."""

import json
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

console = Console()
progress = Console(stderr=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]

images_app = typer.Typer(
    no_args_is_help=True,
    help="Build, list, check and remove the images that boxes run on. No image is ever made while an episode waits.",
)


def add_to(app: typer.Typer) -> None:
    app.add_typer(images_app, name="images", rich_help_panel="Stack")


@images_app.command()
def build(
    debian: Annotated[
        list[str] | None, typer.Option(help="A Debian package beside the standard ones; repeat it for more.")
    ] = None,
    python: Annotated[
        list[str] | None, typer.Option(help="A Python package as NAME==VERSION, from its wheel; repeat it for more.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Make an image, once per list of packages, as root. Without packages: the standard one.

    Debian packages come from this machine's own sources and are unpacked; their installation scripts do not run. Wheels come
    from the package index and are installed by the image's own Python, without a network. The name that is printed is what a
    `BoxSpec` or a problem says as `image`; the same packages give the same name everywhere.
    """
    from sandboxes import backends
    from sandboxes.backends import images
    from sandboxes.backends.rootfs import Recipe

    recipe = Recipe(tuple(debian or ()), tuple(python or ()))
    root = images.root_filesystem(_say, recipe)
    client = backends.docker_client()
    if client is not None:
        images.docker_image(client, _say, recipe)
    if as_json:
        typer.echo(json.dumps({"name": recipe.name, "folder": str(root.path), "in_docker": client is not None}))
        return
    console.print(f"{recipe.name}  {root.path}  {'also in Docker' if client else 'no Docker engine answers'}")


@images_app.command("list")
def list_images(as_json: Json = False) -> None:
    """The images made on this machine, the one used last first."""
    from sandboxes import backends
    from sandboxes.backends import images

    found = images.listed(backends.docker_client())
    if as_json:
        typer.echo(json.dumps([asdict(image) for image in found]))
        return
    table = Table("image", "packages beside the standard ones", "MB", "unused for", "in Docker")
    for image in found:
        extra = ", ".join([*image.debian, *image.python]) or (
            "standard" if image.standard else "none: of an older recipe"
        )
        held = {True: "yes", False: "no", None: "no engine"}[image.in_docker]
        table.add_row(image.name, extra, f"{image.bytes / 1e6:.0f}", _duration(image.unused_s), held)
    console.print(table)


@images_app.command()
def check(
    name: Annotated[str, typer.Argument(help="A Docker image, or the absolute path of an unpacked root file system.")],
    as_json: Json = False,
) -> None:
    """Start a box on an image that somebody else made and say what is in it.

    It must be for this machine's architecture, have `/bin/sh` and declare no volumes. It needs no Python: the runner brings its
    own. What its problems need (a Python, git, pytest) is listed.
    """
    import asyncio

    from sandboxes import backends

    backend = backends.choose("bubblewrap" if name.startswith("/") else "docker")
    found = asyncio.run(backends.tools_of(backend, name))
    if as_json:
        typer.echo(json.dumps({"name": name, "backend": backend.name, "tools": found}))
        return
    console.print(f"{name} can be a box of {backend.name}", highlight=False)
    for tool, said in found.items():
        console.print(f"  {tool:<8} {said or '[dim]not there[/dim]'}", highlight=False)


@images_app.command()
def prune(
    unused_days: Annotated[
        float, typer.Option(min=0, help="Only what no program has looked up for so long; an hour at least.")
    ] = 30,
    as_json: Json = False,
) -> None:
    """Remove our images that were not used for a while, here and in Docker; never the standard one, never those of others."""
    from sandboxes import backends
    from sandboxes.backends import images

    gone = images.prune(backends.docker_client(), unused_s=unused_days * 86_400)
    if as_json:
        typer.echo(json.dumps(asdict(gone)))
        return
    console.print("\n".join(gone.images) or "nothing to remove", highlight=False)
    if gone.bytes:
        console.print(f"{gone.bytes / 1e6:.0f} MB given back")


def _say(text: str) -> None:
    progress.print(text, highlight=False, soft_wrap=True)


def _duration(seconds: float) -> str:
    for size, unit in ((86_400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} seconds"
