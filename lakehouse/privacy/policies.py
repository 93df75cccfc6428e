"""What happens to secrets and personal data in the episodes of a source: the newest declaration in table `sources`."""

from collections.abc import Iterable, Mapping
from typing import Literal

from lakehouse import store
from lakehouse.records import Episode

Policy = Literal["mask", "quarantine", "allow"]
EVERY = "*"  # the source of declarations that hold for sources without one of their own
OUTSIDE = "external"  # the kind of problem, and the source, of conversations that an outside application had


def undeclared(kind: str) -> Policy:
    """What holds where nobody has declared anything.

    Episodes that we play ourselves show what a problem's files show, which somebody chose and loaded. What an outside
    application's users say nobody has looked at.
    """
    return "mask" if kind == OUTSIDE else "allow"


def declared(lake: str) -> dict[str, Policy]:
    """The policy of every source with a declaration."""
    table = store.opened(lake, "sources")
    if table is None:
        return {}
    rows = store.read(lake, table, ["source", "privacy", "declared_at"]).sort_by("declared_at")
    return dict(zip(rows["source"].to_pylist(), rows["privacy"].to_pylist(), strict=True))


def of_source(source: str, kind: str, told: Mapping[str, Policy]) -> Policy:
    return told.get(source) or told.get(EVERY) or undeclared(kind)


def of_episodes(lake: str, episodes: Iterable[Episode]) -> dict[str, Policy]:
    """The policy of each episode, by its id. Its source is its problem's; of a problem not in the lake, its kind."""
    told, episodes = declared(lake), list(episodes)
    sources = _sources(lake, {episode.problem_id for episode in episodes}) if set(told) - {EVERY} else {}
    return {
        episode.episode_id: of_source(sources.get(episode.problem_id, episode.problem_kind), episode.problem_kind, told)
        for episode in episodes
    }


def _sources(lake: str, problem_ids: set[str]) -> dict[str, str]:
    table = store.opened(lake, "problems")
    if table is None or not problem_ids:
        return {}
    wanted: list[tuple[str, Literal["in"], list[str]]] = [("problem_id", "in", sorted(problem_ids))]
    rows = store.read(lake, table, ["problem_id", "source", "created_at"], wanted).sort_by("created_at")
    return dict(zip(rows["problem_id"].to_pylist(), rows["source"].to_pylist(), strict=True))
