"""`gateway`: the recording gateway alone, before any engine."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from lakehouse.home import Home, home

console = Console()
ENGINE, LIMITS, NETWORK = "Engines", "Bounds", "Network"


def add_to(app: typer.Typer) -> None:
    app.command(rich_help_panel="Stack", epilog=EPILOG)(gateway)


EPILOG = """Try it: `lakeloop gateway --engine http://127.0.0.1:8000 --model NAME`, then the `curl` line that it prints. Routes and
bodies are at `/docs` of the URL it prints; docs/gateway.md says how agents are pointed at it."""


def gateway(
    engine: Annotated[
        list[str],
        typer.Option(
            metavar="URL", help="Base URL of a vLLM engine; again for more with the same model.", rich_help_panel=ENGINE
        ),
    ],
    model: Annotated[
        str, typer.Option(help="The served model's name, the only one that agents may ask for.", rich_help_panel=ENGINE)
    ],
    allow_upstream: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST",
            help="Engines that are not on this machine: a host name, an address or a network; may be repeated. A name "
            "that resolves to a private address needs that address, or its network, listed too.",
            rich_help_panel=ENGINE,
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.", rich_help_panel=NETWORK)] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 takes a free one.", rich_help_panel=NETWORK)] = 8900,
    tls_cert: Annotated[
        Path | None, typer.Option(help="Serve HTTPS: certificate, PEM.", rich_help_panel=NETWORK)
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="The certificate's key, PEM.", rich_help_panel=NETWORK)] = None,
    socket: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="Also listen on a Unix socket, alone in its folder, for agents inside boxes: only model keys open "
            "anything there.",
            rich_help_panel=NETWORK,
        ),
    ] = None,
    socket_group: Annotated[
        int | None,
        typer.Option(
            metavar="GID",
            help="A group that may use the socket too; 1000 for bubblewrap's boxes where the gateway is root.",
            rich_help_panel=NETWORK,
        ),
    ] = None,
    home_folder: Annotated[
        Path | None,
        typer.Option("--home", help="Keys and journal are kept here; else LAKELOOP_HOME, else .lakeloop/."),
    ] = None,
    workers: Annotated[
        int,
        typer.Option(
            help="Worker processes on the one port; about one per core that may be spent.", rich_help_panel=LIMITS
        ),
    ] = 1,
    max_sessions: Annotated[int, typer.Option(help="Open at once; more are told 429.", rich_help_panel=LIMITS)] = 256,
    max_calls: Annotated[int, typer.Option(help="Running at once; more are told 429.", rich_help_panel=LIMITS)] = 256,
    drain: Annotated[
        float, typer.Option(metavar="SECONDS", help="For running calls after the first signal.", rich_help_panel=LIMITS)
    ] = 8.0,
    max_mask_fraction: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            help="Start no more sessions where more of the last 20 were lost to training; 1 never stops.",
            rich_help_panel=LIMITS,
        ),
    ] = 0.5,
    token_route: Annotated[
        str,
        typer.Option(
            metavar="auto|generate|chat",
            help="How tokens are had: over the engine's token routes, over chat completions with ids, or what it has.",
            rich_help_panel=ENGINE,
        ),
    ] = "auto",  # noqa: S107 - how an engine gives tokens, no secret
    model_key_rewards: Annotated[
        bool,
        typer.Option(
            "--model-key-rewards",
            help="A session's model key may give rewards, as AReaL's clients do: not for agents that could reward "
            "themselves.",
        ),
    ] = False,
    traces: Annotated[
        bool, typer.Option(help="OpenTelemetry spans to OTEL_EXPORTER_OTLP_ENDPOINT (extra `otel`).")
    ] = False,
) -> None:
    """Run the recording gateway alone: agents use it as their OpenAI or Anthropic endpoint, and every call is recorded.

    An agent needs a base URL and a key. The operator opens a **session** per episode and gets two keys: the model key, which
    the agent uses as its `api_key`, and the reward key, which stays outside. Tokens, log-probs and weight versions are
    recorded with each call, and exported with the rewards.

    Ctrl-C or SIGTERM lets running calls finish (see `--drain`), a second one ends at once.
    """
    from pydantic import ValidationError

    from sandboxes.gateway.server.serve import Place, run
    from sandboxes.gateway.settings import Settings

    place_home = Home(home_folder.resolve()) if home_folder else home()
    try:
        settings = Settings(
            engine=engine[0],
            more_engines=engine[1:],
            home=place_home.root,
            model=model,
            allow_upstream=allow_upstream or [],
            max_sessions=max_sessions,
            max_calls=max_calls,
            max_mask_fraction=max_mask_fraction,
            token_route=token_route,  # type: ignore[arg-type]  # pydantic checks it
            model_key_rewards=model_key_rewards,
            traces=traces,
        )
        place = Place(
            settings=settings,
            host=host,
            port=port,
            tls_cert=tls_cert,
            tls_key=tls_key,
            socket=socket,
            socket_group=socket_group,
            workers=workers,
            drain_s=drain,
        )
    except ValidationError as error:
        raise typer.BadParameter(
            "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
        ) from error
    sys.exit(run(place, lambda url: _teach(url, settings.operator_key, settings.metrics_key)))


def _teach(url: str, operator_key: Path, metrics_key: Path) -> None:
    """What to do next. Keys are named by their files and never shown."""
    say = f"""
  operator key  {operator_key}  starts sessions and exports them
  metrics key   {metrics_key}  for Prometheus, at {url}/metrics
  routes        {url}/docs

  Start a session:
    curl -s {url}/rl/start_session -H "Authorization: Bearer $(cat '{operator_key}')" -d '{{"task_id": "try"}}'
  Point an agent at it, with the api_key of the answer:
    export OPENAI_BASE_URL={url}/v1 OPENAI_API_KEY=...
"""
    console.print(say, highlight=False, markup=False, soft_wrap=True)
    if url.startswith("http://") and not any(here in url for here in ("//127.", "//[::1]", "//localhost")):
        console.print("  Keys cross the network unencrypted: use --tls-cert and --tls-key, or a proxy that does TLS.\n")
