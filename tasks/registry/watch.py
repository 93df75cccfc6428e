"""Redeploy when the promoted version is not the served one: `python -m tasks.registry.watch`.

Every few seconds this asks MLflow where the alias points and the engine what it serves. When the two differ it starts a
run of the Prefect deployment `reconcile/reconcile`, which does the work. While a loop or a canary is alive the engine may
serve the challenger as well, until the champion moves: then reconcile looks who moved it. A version that was refused is not
tried again. Plain HTTP, because it runs all the time.
"""

import argparse
import logging
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx

DEPLOYMENT = "reconcile/reconcile"
POLL_S = 5.0
LONGEST_PAUSE_S = 60.0
# Flows that swap weights themselves. While one is at work the engine may serve what is not promoted yet.
SWAPPING = ["reconcile", "release", "gate"]
STUCK = timedelta(minutes=15)  # a run that is "running" for longer was killed without Prefect hearing of it
ACTIVE = ["PENDING", "RUNNING", "CANCELLING"]
CHALLENGER, REFUSED = "challenger", "refused"  # as in `moves`, which this process has no memory for
LOOP, CANARY = "improve", "canary"  # flows that serve a challenger while they run
EXAM = "gate"  # the flow that keeps sessions away from an engine while an exam is sat on it

log = logging.getLogger("lakeloop.watch")


@dataclass(frozen=True)
class Alias:
    """Where an alias points, and whether that version was refused."""

    version: int
    refused: bool


@dataclass
class Watch:
    """Compares promoted and served, and starts a reconcile run where they differ.

    With a gateway and its operator key's file it also sees a split of sessions that a dead canary left.
    """

    mlflow: str
    engine: str
    prefect: str
    model: str
    gateway: str | None = None
    operator_key: Path | None = None
    known: int | None = None  # the champion beside which the challenger may be served
    client: httpx.Client = field(default_factory=lambda: httpx.Client(timeout=10.0, trust_env=False))

    def alias(self, alias: str) -> Alias | None:
        """Where an alias points; None while it points nowhere."""
        where = {"name": self.model, "alias": alias}
        answer = self.client.get(f"{self.mlflow}/api/2.0/mlflow/registered-models/alias", params=where)
        if answer.status_code in (400, 404):  # no such model, or no such alias
            return None
        version = answer.raise_for_status().json()["model_version"]
        tags = {tag["key"] for tag in version.get("tags", [])}
        return Alias(int(version["version"]), refused=REFUSED in tags)

    def served(self) -> str:
        """The engine's own label of its weights."""
        return str(self.client.get(f"{self.engine}/weight_info").raise_for_status().json()["weight_version"])

    def split(self) -> bool:
        """Whether the gateway parts sessions between two versions. A gateway that is not there does not."""
        if self.gateway is None or self.operator_key is None or not self.operator_key.is_file():
            return False
        headers = {"Authorization": f"Bearer {self.operator_key.read_text().strip()}"}
        try:
            answer = self.client.get(f"{self.gateway}/engines", headers=headers)
        except httpx.TransportError:
            return False
        return answer.status_code == 200 and answer.json().get("split") is not None

    def busy(self) -> bool:
        """Whether a run that swaps weights is due or under way."""
        now = datetime.now(UTC)
        for run in self._runs(SWAPPING, [*ACTIVE, "SCHEDULED"]):
            since = datetime.fromisoformat(run["start_time"] or run["expected_start_time"])
            # A later scheduled run does not count.
            if now - STUCK < since < now + timedelta(seconds=POLL_S):
                return True
        return False

    def alive(self, *flows: str) -> bool:
        """Whether a run of one of these flows is at work. What was killed an automation of Prefect's ends."""
        return bool(self._runs(list(flows), ACTIVE))

    def _runs(self, flows: list[str], states: list[str]) -> list[dict[str, Any]]:
        body = {
            "flows": {"name": {"any_": flows}},
            "flow_runs": {"state": {"type": {"any_": states}}},
            "limit": 200,
        }
        found: list[dict[str, Any]] = (
            self.client.post(f"{self.prefect}/flow_runs/filter", json=body).raise_for_status().json()
        )
        return found

    def reconcile(self) -> str:
        """Start a run of the deployment; its id."""
        found = self.client.get(f"{self.prefect}/deployments/name/{DEPLOYMENT}").raise_for_status().json()
        made = self.client.post(f"{self.prefect}/deployments/{found['id']}/create_flow_run", json={})
        return str(made.raise_for_status().json()["id"])

    def step(self) -> str | None:
        """One look; the id of the run that was started, if one was."""
        champion = self.alias("champion")
        if champion is None:
            return None
        cause = self._cause(champion, self.served())
        if cause is None or self.busy():
            return None
        run_id = self.reconcile()
        self.known = champion.version
        log.info("%s: started %s, run %s", cause, DEPLOYMENT, run_id)
        return run_id

    def _cause(self, champion: Alias, served: str) -> str | None:
        """Why something has to be done; None where all is as it should be, or a version that was refused explains it."""
        if served != str(champion.version):
            if champion.refused and served.isdecimal() and served != "0":
                return None  # another good version serves meanwhile
            challenger = self.alias(CHALLENGER)
            if challenger and served == str(challenger.version) and self.alive(LOOP, CANARY):
                self.known = self.known or champion.version  # of a move before the first look the loop knows itself
                if self.known == champion.version:
                    return None
            return f"{self.model} version {champion.version} is promoted and {served!r} is served"
        self.known = champion.version
        if self.split() and not self.alive(CANARY, EXAM):
            return "sessions are split and no canary is at work"
        return None


def watch(look: Watch, poll_s: float = POLL_S) -> None:
    """Look for ever. After a failure, and after a run that changed nothing, pauses grow up to a minute."""
    pause = poll_s
    while True:
        try:
            acted = look.step() is not None
            pause = min(2 * pause, LONGEST_PAUSE_S) if acted else poll_s
        except (httpx.HTTPError, KeyError, ValueError) as error:
            pause = min(2 * pause, LONGEST_PAUSE_S)
            log.warning("could not compare promoted and served (%s); next look in %.0f s", error, pause)
        time.sleep(pause)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("mlflow", "engine", "prefect", "model"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--gateway")
    parser.add_argument("--operator-key", type=Path)
    parser.add_argument("--poll-s", type=float, default=POLL_S)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)  # a line per poll says nothing
    look = Watch(
        arguments.mlflow,
        arguments.engine,
        arguments.prefect,
        arguments.model,
        arguments.gateway,
        arguments.operator_key,
    )
    watch(look, arguments.poll_s)


if __name__ == "__main__":
    main()
