"""What a model card says of a version, as far as the lake knows it."""

from typing import Any

from pydantic import BaseModel

from lakehouse.lineage.versions import Row, records, training_set
from lakehouse.lineage.why import Why, why
from lakehouse.query import connect
from lakehouse.records import TrainingSet


class Facts(BaseModel):
    """A version: what made it, how well it does, and what may be done with it."""

    why: Why
    training_set: TrainingSet | None
    problems: list[Row]  # by kind: problems, episodes. No names: a card is copied about, and names may be somebody's
    success: list[Row]  # by kind of problem, purpose and rubric: episodes, scored, success
    hacks: list[Row]  # by kind of problem and purpose: episodes, severe, rate, detectors
    proofs: list[Row]  # the newest deployment on each engine: accepted, reason, deployed_at
    gates: list[Row]  # decisions about it, the newest first
    tainted: str | None  # the erasure that removed what it was trained on


def facts(lake: str | None, name: str, version: int) -> Facts:
    """Everything the card of `name@version` tells. UnknownVersion where there is none."""
    held = why(lake, f"{name}@{version}")
    key: list[Any] = [name, version]
    with connect(lake) as connection:
        tainted = records(connection, "from tainted_versions where name = $1 and version = $2", key)
        return Facts(
            why=held,
            training_set=training_set(connection, held.version.training_set_id),
            problems=records(
                connection,
                """
                select problem_kind, count(distinct problem_id) as problems, count(*) as episodes
                from trained_on inner join episodes using (episode_id)
                where training_set_id = $1
                group by problem_kind
                order by problem_kind
                """,
                [held.version.training_set_id],
            ),
            success=records(
                connection,
                """
                select problem_kind, purpose, rubric, episodes, scored, success
                from success_by_version where model_name = $1 and model_version = $2
                order by purpose, problem_kind, rubric
                """,
                key,
            ),
            hacks=records(
                connection,
                """
                select problem_kind, purpose, episodes, severe, rate, detectors
                from radar_by_version where model_name = $1 and model_version = $2 and severe > 0
                order by purpose, problem_kind
                """,
                key,
            ),
            proofs=records(
                connection,
                """
                from deployments where name = $1 and version = $2
                qualify row_number() over (partition by engine_url order by deployed_at desc) = 1
                order by engine_url
                """,
                key,
            ),
            gates=records(connection, "from gates where name = $1 and candidate = $2 order by decided_at desc", key),
            tainted=tainted[0]["erasure_id"] if tainted else None,
        )
