"""Settings of the local stack: environment variables with the prefix `LAKELOOP_`, each with a working default.

What `up` was given is remembered in the home folder until `down`, so that a command in another terminal finds the same stack.
"""

import os
import sys
from hashlib import sha256
from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator
from pydantic_settings import (
    BaseSettings,
    JsonConfigSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from lakehouse.home import Home, home
from tasks.stack.automations import HEARTBEAT_S

ROOT = Path(__file__).resolve().parents[2]  # the repository: prefect.yaml and the four packages lie here
HOST = "127.0.0.1"  # never a setting: the engine's control routes have no login
POOL = "lakeloop"
SOCKET_PATH_BYTES = 107  # the most that Linux takes as a socket's path

Port = Annotated[int, Field(ge=1, le=65535)]


class Settings(BaseSettings):
    """What `lakeloop up` starts and where. `LAKELOOP_MLFLOW_PORT=5001` sets `mlflow_port`, and so on."""

    model_config = SettingsConfigDict(env_prefix="LAKELOOP_", extra="forbid", frozen=True)

    model: str = "tiny"  # "tiny", "smollm2", a Hugging Face folder or a hub name
    prefect_port: Port = 4200
    mlflow_port: Port = 5000
    engine_port: Port = 8000
    gateway_port: Port = 8900
    engine_url: str | None = None  # adopt an engine that runs elsewhere, such as "http://gpu-box:8000"
    engine_python: Path = ROOT / ".venv-engine/bin/python"
    engine_deadline_s: float = Field(default=300, gt=0)  # importing the engine from a cold disk takes minutes
    max_model_len: int = Field(default=2048, ge=16)  # tokens
    roll_at_once: int = Field(default=1, ge=1)  # engines of several that are swapped at a time; the first is alone
    prefect_database: str | None = None  # "postgresql+asyncpg://..."; default SQLite in the home folder
    mlflow_database: str | None = None  # "postgresql://..."; default SQLite in the home folder
    notify: str | None = None  # a notification block of Prefect, TYPE/NAME, that is told of failed runs

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, JsonConfigSettingsSource(settings_cls, json_file=_remembered())

    def remember(self) -> None:
        """Keep these settings for later commands in the same home folder; only its owner may read database passwords."""
        _remembered().touch(mode=0o600)
        _remembered().chmod(0o600)
        _remembered().write_text(self.model_dump_json(indent=1, exclude_defaults=True))

    @staticmethod
    def forget() -> None:
        _remembered().unlink(missing_ok=True)

    @field_validator("engine_url")
    @classmethod
    def _no_slash(cls, url: str | None) -> str | None:
        if url is None or url == "":
            return None
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"LAKELOOP_ENGINE_URL must start with http:// or https://, not {url!r}")
        return url.rstrip("/")

    @property
    def home(self) -> Home:
        return home()

    @property
    def model_name(self) -> str:
        """The name under which the engine serves the model and MLflow registers it."""
        return Path(self.model).name.lower() or "model"

    @property
    def prefect_url(self) -> str:
        """Prefect's API; its UI is the same without `/api`."""
        return f"http://{HOST}:{self.prefect_port}/api"

    @property
    def mlflow_url(self) -> str:
        return f"http://{HOST}:{self.mlflow_port}"

    @property
    def engine(self) -> str:
        """The engine's URL, ours or the adopted one."""
        return self.engine_url or f"http://{HOST}:{self.engine_port}"

    @property
    def gateway_url(self) -> str:
        return f"http://{HOST}:{self.gateway_port}"

    @property
    def operator_key(self) -> Path:
        """The file with the gateway's operator key, there once the gateway was started."""
        return self.home.keys / "operator"

    @property
    def door(self) -> Path | None:
        """The gateway's socket for agents in boxes; None where its path would be too long for one.

        Root's is outside the home folder, which the boxes' own uid may not enter.
        """
        here = sha256(str(self.home.root).encode()).hexdigest()[:12]
        folder = Path("/run/lakeloop") / here if os.geteuid() == 0 else self.home.gateway / "door"
        path = folder / "gateway.sock"
        return path if len(os.fsencode(path)) <= SOCKET_PATH_BYTES else None

    @property
    def prefect_database_url(self) -> str:
        return self.prefect_database or f"sqlite+aiosqlite:///{self.home.root / 'prefect' / 'prefect.db'}"

    @property
    def mlflow_database_url(self) -> str:
        return self.mlflow_database or f"sqlite:///{self.home.root / 'mlflow' / 'mlflow.db'}"

    def environment(self) -> dict[str, str]:
        """Variables that point a process (worker, flow run, trainer, notebook) at this stack and at nothing outside."""
        own = {f"LAKELOOP_{name.upper()}": str(value) for name, value in self.model_dump(exclude_none=True).items()}
        return own | {
            "LAKELOOP_HOME": str(self.home.root),
            "PREFECT_API_URL": self.prefect_url,
            "PREFECT_HOME": str(self.home.root / "prefect"),
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": str(HEARTBEAT_S),
            "MLFLOW_TRACKING_URI": self.mlflow_url,
            "MLFLOW_DISABLE_TELEMETRY": "true",
            # A server that is away is waited for half a minute, and the tasks' own tries come on top; by default it is four.
            "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "5",
            "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
            "MLFLOW_HTTP_REQUEST_TIMEOUT": "60",
            "DO_NOT_TRACK": "1",  # Prefect's and vLLM's clients heed this one
            "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', '/usr/bin:/bin')}",
        }


def _remembered() -> Path:
    return home().root / "stack.json"
