"""Redeploy when the promoted version is not the served one: `python -m tasks.registry.watch`.

Every few seconds this asks MLflow where the alias points and the engine what it serves. When the two differ it starts a
run of the Prefect deployment `reconcile/reconcile`, which does the work. Plain HTTP, because it runs all the time.
"""

import argparse
import logging
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import httpx

DEPLOYMENT = "reconcile/reconcile"
POLL_S = 5.0
LONGEST_PAUSE_S = 60.0
# Flows that swap weights themselves. While one is at work the engine may serve what is not promoted yet.
SWAPPING = ["reconcile", "release", "gate"]
STUCK = timedelta(minutes=15)  # a run that is "running" for longer was killed without Prefect hearing of it
ACTIVE = ["PENDING", "RUNNING", "CANCELLING"]

log = logging.getLogger("lakeloop.watch")


@dataclass
class Watch:
    """Compares promoted and served, and starts a reconcile run where they differ."""

    mlflow: str
    engine: str
    prefect: str
    model: str
    alias: str = "champion"
    client: httpx.Client = field(default_factory=lambda: httpx.Client(timeout=10.0, trust_env=False))

    def promoted(self) -> int | None:
        """The version under the alias; None while nothing is promoted."""
        where = {"name": self.model, "alias": self.alias}
        answer = self.client.get(f"{self.mlflow}/api/2.0/mlflow/registered-models/alias", params=where)
        if answer.status_code in (400, 404):  # no such model, or no such alias
            return None
        return int(answer.raise_for_status().json()["model_version"]["version"])

    def served(self) -> str:
        """The engine's own label of its weights."""
        return str(self.client.get(f"{self.engine}/weight_info").raise_for_status().json()["weight_version"])

    def busy(self) -> bool:
        """Whether a run that swaps weights is due or under way."""
        body = {
            "flows": {"name": {"any_": SWAPPING}},
            "flow_runs": {"state": {"type": {"any_": [*ACTIVE, "SCHEDULED"]}}},
            "limit": 200,
        }
        now = datetime.now(UTC)
        for run in self.client.post(f"{self.prefect}/flow_runs/filter", json=body).raise_for_status().json():
            since = datetime.fromisoformat(run["start_time"] or run["expected_start_time"])
            # A later scheduled run does not count.
            if now - STUCK < since < now + timedelta(seconds=POLL_S):
                return True
        return False

    def reconcile(self) -> str:
        """Start a run of the deployment; its id."""
        found = self.client.get(f"{self.prefect}/deployments/name/{DEPLOYMENT}").raise_for_status().json()
        made = self.client.post(f"{self.prefect}/deployments/{found['id']}/create_flow_run", json={})
        return str(made.raise_for_status().json()["id"])

    def step(self) -> str | None:
        """One look; the id of the run that was started, if one was."""
        promoted = self.promoted()
        if promoted is None or self.served() == str(promoted) or self.busy():
            return None
        run_id = self.reconcile()
        log.info(
            "%s version %d is promoted and not served: started %s, run %s", self.model, promoted, DEPLOYMENT, run_id
        )
        return run_id


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
    parser.add_argument("--poll-s", type=float, default=POLL_S)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)  # a line per poll says nothing
    watch(Watch(arguments.mlflow, arguments.engine, arguments.prefect, arguments.model), arguments.poll_s)


if __name__ == "__main__":
    main()
