"""Where an episode was used: the training sets that hold it, and every model version that it reached."""

from pydantic import BaseModel

from lakehouse.lineage.versions import records
from lakehouse.query import connect
from lakehouse.trajectory import UnknownEpisode


class Reached(BaseModel):
    """A version that the episode trained (distance 0), or one that comes from such a version."""

    name: str
    version: int
    distance: int


class Use(BaseModel):
    """One training set with the episode's tokens in it."""

    training_set_id: str
    rows: int
    trained_tokens: int
    versions: list[Reached]


def where_used(lake: str | None, episode_id: str) -> list[Use]:
    """Every training set that holds the episode, the oldest first; empty where none does. UnknownEpisode."""
    with connect(lake) as connection:
        rows = records(
            connection,
            """
            select where_used.*
            from where_used
            inner join training_sets using (training_set_id)
            where episode_id = $1
            order by created_at, training_set_id, name, version, distance
            """,
            [episode_id],
        )
        if not rows and not records(connection, "select 1 as there from episodes where episode_id = $1", [episode_id]):
            raise UnknownEpisode(
                f"no episode {episode_id!r} has landed; `lakeloop query 'from episodes'` lists those that have"
            )
    uses: dict[str, Use] = {}
    for row in rows:
        use = uses.setdefault(
            row["training_set_id"],
            Use(
                training_set_id=row["training_set_id"],
                rows=row["n_rows"],
                trained_tokens=row["trained_tokens"],
                versions=[],
            ),
        )
        if row["version"] is not None:
            use.versions.append(Reached(**{name: row[name] for name in Reached.model_fields}))
    return list(uses.values())
