"""Commands that run flows: the same flows and parameters as the deployments in the Prefect UI."""

import argparse
import asyncio
import inspect
import json
import os
import textwrap
from importlib import import_module
from typing import Any

import typer
from rich.console import Console

console = Console()

FLOWS = {
    "collect": "Roll out episodes and land them in the lake.",
    "ingest": "Land what outside applications played through the gateway.",
    "judge": "Have a model or a Python function judge episodes, as evidence for rubrics.",
    "label": "Judge episodes by SQL rubrics.",
    "train": "Select a training set and train on it.",
    "release": "Register weights, deploy them with a proof, promote them.",
    "canary": "Give a version a share of production, then promote it or roll it back.",
    "reconcile": "Deploy the promoted version if another one is served.",
    "evaluate": "Measure the served version on held-out problems.",
    "improve": "Run rounds of collect, label, train and release.",
    "learn": "Train on what waits, if it is enough, and release it through the gate.",
    "maintain": "Compact, expire and vacuum the lake, prune what grows beside it, run the checks.",
    "reap": "Remove boxes past their lease from this machine.",
}


def add_to(app: typer.Typer) -> None:
    from flows.cli.quickstart import quickstart

    app.command(rich_help_panel="Loop")(quickstart)
    for name, help_text in FLOWS.items():
        app.command(
            name,
            help=help_text,
            rich_help_panel="Loop",
            add_help_option=False,  # the options are the flow's own parameters
            context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
        )(_command(name))


def _command(name: str) -> Any:
    def command(context: typer.Context) -> None:
        run(name, context.args)

    return command


def run(name: str, arguments: list[str]) -> None:
    """Run a flow with the options given and print its result as JSON."""
    point_at_stack()
    result = call(name, parse(getattr(import_module(f"flows.{name}"), name), arguments))
    if result is not None:
        typer.echo(json.dumps(_plain(result), indent=2, default=str))


def call(name: str, given: dict[str, Any], shown: Console = console) -> Any:
    """Run a flow against the stack of this home folder, with progress; its result."""
    point_at_stack()
    flow = getattr(import_module(f"flows.{name}"), name)
    check_stack()
    from flows.cli.display import progress_display

    with progress_display(shown):
        result = flow(**given)
        return asyncio.run(_awaited(result)) if inspect.isawaitable(result) else result


async def _awaited(result: Any) -> Any:
    return await result


def point_at_stack() -> None:
    """Make Prefect, MLflow and everything started from here speak to this home's stack. Before Prefect is imported."""
    from tasks.stack import Settings

    settings = Settings()
    settings.home.root.mkdir(parents=True, exist_ok=True)  # Prefect keeps its profile there
    os.environ.update(settings.environment())
    # The display tells what happens and an error is told once, at the end; the UI has every line.
    os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
    os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")
    os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")


def check_stack() -> None:
    """StackError where this home's Prefect server does not answer: every flow needs it."""
    from tasks.stack import Settings, StackError
    from tasks.stack.probes import Seen, prefect

    settings = Settings()
    look = prefect(settings.prefect_url, str(settings.home.root))
    if look.seen is not Seen.READY:
        found = f"found {look.what}" if look.what else "nothing answers"
        raise StackError(
            f"no Prefect server of {settings.home.root} at {settings.prefect_url}: {found}. Run `lakeloop up` first."
        )


def parse(flow: Any, arguments: list[str]) -> dict[str, Any]:
    """Options `--some-name VALUE` for each parameter of a flow; dictionaries and lists as JSON, a switch also without a value.

    The one parameter without a default may be written first, without its name. What the flow would refuse ends here, with
    a usage line and exit status 2.
    """
    from prefect.exceptions import ParameterTypeError
    from prefect.utilities.callables import get_call_parameters

    schema = flow.parameters.model_dump()
    parser = argparse.ArgumentParser(
        prog=f"lakeloop {flow.name}",
        description=(inspect.getdoc(flow.fn) or "").partition("\nArgs:")[0],
        formatter_class=Help,
        allow_abbrev=False,
    )
    for name, about in schema["properties"].items():
        default = about.get("default")
        note = "" if default is None else f" [{json.dumps(default)}]"
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            dest=name,
            default=argparse.SUPPRESS,
            required=name in schema.get("required", []),
            help=((about.get("description") or "") + note).replace("%", "%%"),
            metavar=_metavar(about),
            **({"nargs": "?", "const": "true"} if about.get("type") == "boolean" else {}),
        )
        if _is_list_of_text(name, about):
            parser.add_argument(
                f"--{name.removesuffix('s').replace('_', '-')}",
                dest=f"each {name}",
                action="append",
                default=argparse.SUPPRESS,
                help=f"One of --{name.replace('_', '-')}; may be repeated.",
                metavar="VALUE",
            )
    required = schema.get("required", [])
    if len(required) == 1 and arguments and not arguments[0].startswith("-"):  # `lakeloop canary 5`: one can be meant
        arguments = [f"--{required[0].replace('_', '-')}", *arguments]
    written = vars(parser.parse_args(arguments))
    for name in [name for name in schema["properties"] if f"each {name}" in written]:
        if name in written:
            parser.error(f"--{name} and --{name.removesuffix('s')} together: write one of them")
        written[name] = json.dumps(written.pop(f"each {name}"))
    given = {name: _value(name, text, parser) for name, text in written.items()}
    try:
        flow.validate_parameters(get_call_parameters(flow.fn, (), given))
    except ParameterTypeError as error:
        parser.error(str(error))
    return given


class Help(argparse.RawDescriptionHelpFormatter):
    """Names are not broken at their hyphens: they are there to be copied."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False, break_long_words=False)


def _is_list_of_text(name: str, about: dict[str, Any]) -> bool:
    """Whether each value of a parameter can be an option of its own: `--run-id a --run-id b`."""
    kinds = [about, *about.get("anyOf", [])]
    return name.endswith("s") and any(
        kind.get("type") == "array" and kind.get("items", {}).get("type") == "string" for kind in kinds
    )


def _metavar(about: dict[str, Any]) -> str:
    if "enum" in about:
        return "|".join(map(str, about["enum"]))
    kinds = [about.get("type"), *(option.get("type") for option in about.get("anyOf", []))]
    return {"object": "JSON", "array": "JSON"}.get(next((k for k in kinds if k), ""), "VALUE")


def _value(name: str, text: str, parser: argparse.ArgumentParser) -> Any:
    """JSON where it looks like JSON, else the text; the flow's own validation does the rest."""
    if text[:1] in "{[":
        try:
            return json.loads(text)
        except ValueError as error:
            parser.error(f"--{name.replace('_', '-')}: not JSON: {error}")
    return None if text == "null" else text


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else value
