"""What changed between two model versions, where on the way success fell, and what each change did to the training set there.

One part of the older version's selection is put in place of the newer's at a time (its rubrics, its filters, only its sources
of data, only its engines), and the selection is decided again over the same pinned tables: no GPU, no rollout. What only
training could tell, such as another recipe, is listed and not measured.
"""

import itertools
from collections.abc import Callable, Iterator

import polars as pl
from pydantic import BaseModel

from lakehouse.lineage.changes import Change, changes
from lakehouse.lineage.versions import Row, records, training_set, version
from lakehouse.query import Connection, UnknownPin, connect
from lakehouse.records import ModelVersion, TrainingSet
from lakehouse.selection.select import NotPinned, decided, pinned_selection

MEASURED = ("rubric", "filter", "setting", "data", "engine")
WITH_OTHERS = (
    "max_staleness",
    "advantage",
    "overlong",
)  # what is asked of a selection and measured with the filter or by itself
WORTH_NAMING = 0.01  # share of the training signal


class Evaluation(BaseModel):
    """How a version did on held-out problems of one kind."""

    version: int
    kind: str
    episodes: int
    success: float


class Effect(BaseModel):
    """What one change did to the newer version's training set, against the same set without that change.

    `share` of the training signal that is another: sum of |advantage - advantage without| over the sum of the larger of
    both, over all episodes of either: 0 for none, 1 for all.
    """

    what: str  # rubric, advantage, filter, data, engine
    episodes: int  # of the newer version's set
    episodes_without: int  # with the older version's part in its place
    only_now: int
    only_without: int
    mean_advantage: float | None  # |advantage| of an episode
    mean_advantage_without: float | None
    share: float


class Bisected(BaseModel):
    """`path` goes from the older version to the newer along parents, or is just both where one is not of the other."""

    name: str
    path: list[int]
    descends: bool
    evaluations: list[Evaluation]
    changes: list[Change]
    suspect: tuple[int, int]  # the step of the path at which success fell most; the last one where nothing fell
    fell: (
        float | None
    )  # by how much: a difference of success; None where no two versions of a step were evaluated alike
    effects: list[Effect]  # of the suspect step, the largest share first
    not_measured: str | None  # what of the effects is missing, and why
    verdict: str


class NotComparable(ValueError):
    """Two versions that cannot be compared."""


def bisect(lake: str | None, older: str, newer: str) -> Bisected:
    """What changed from one version to the other (`name@number`), and what of it most likely explains a regression.

    UnknownVersion, or NotComparable where they are of two models or the same version.
    """
    with connect(lake) as connection:
        first, last = version(connection, older), version(connection, newer)
        if first.name != last.name or first.version == last.version:
            raise NotComparable(f"{older} and {newer}: give two different versions of one model, the older first")
        path, descends = _path(connection, first, last)
        steps = list(itertools.pairwise(path))
        found = [change for one, other in steps for change in changes(connection, one, other)]
        evaluations = _evaluations(connection, path)
        falls = [(_fall(evaluations, one.version, other.version), one, other) for one, other in steps]
        sets = {one.version: training_set(connection, one.training_set_id) for one in path}
    fell, one, other = max(falls, key=lambda fall: (fall[0] is not None, fall[0] or 0.0, fall[2].version))
    if not fell or fell <= 0:
        _, one, other = falls[-1]
    effects, note = _effects(lake, sets[one.version], sets[other.version])
    here = [change for change in found if (change.older, change.newer) == (one.version, other.version)]
    return Bisected(
        name=first.name,
        path=[held.version for held in path],
        descends=descends,
        evaluations=evaluations,
        changes=found,
        suspect=(one.version, other.version),
        fell=fell,
        effects=effects,
        not_measured=note,
        verdict=_verdict(here, effects),
    )


def _path(connection: Connection, first: ModelVersion, last: ModelVersion) -> tuple[list[ModelVersion], bool]:
    rows = records(
        connection,
        """
        select held.*
        from ancestry
        inner join model_versions as held on ancestry.name = held.name and ancestry.ancestor = held.version
        where ancestry.name = $1 and ancestry.version = $2
        order by distance desc
        """,
        [last.name, last.version],
    )
    line = [ModelVersion(**row) for row in rows]
    numbers = [held.version for held in line]
    if first.version not in numbers:
        return [first, last], False
    return line[numbers.index(first.version) :], True


def _evaluations(connection: Connection, path: list[ModelVersion]) -> list[Evaluation]:
    rows = records(
        connection,
        """
        select
            model_version as version,
            problem_kind as kind,
            sum(scored)::bigint as episodes,
            sum(solved) / sum(scored) as success
        from success_by_version
        where model_name = $1 and list_contains($2, model_version) and purpose like 'eval%' and scored > 0
        group by model_version, problem_kind
        order by model_version, problem_kind
        """,
        [path[0].name, [held.version for held in path]],
    )
    return [Evaluation(**row) for row in rows]


def _fall(evaluations: list[Evaluation], older: int, newer: int) -> float | None:
    """By how much success fell, on average over the kinds on which both were evaluated."""
    by_kind = {(one.version, one.kind): one.success for one in evaluations}
    kinds = {one.kind for one in evaluations}
    both = [kind for kind in kinds if (older, kind) in by_kind and (newer, kind) in by_kind]
    return sum(by_kind[older, kind] - by_kind[newer, kind] for kind in both) / len(both) if both else None


def _effects(lake: str | None, older: TrainingSet | None, newer: TrainingSet | None) -> tuple[list[Effect], str | None]:
    """Effects, and why there are none or what they are of."""
    if older is None or newer is None:
        return [], "one of the two was not trained on a training set of this lake"
    if older.objective != newer.objective:
        return [], f"one was trained by {older.objective} and the other by {newer.objective}: no part fits the other"
    try:
        pinned_selection(older), pinned_selection(newer)
        with connect(lake, pinned=newer.pinned_versions) as connection:
            return _measured(connection, older, newer)
    except (NotPinned, UnknownPin) as error:
        return [], str(error)


def _measured(connection: Connection, older: TrainingSet, newer: TrainingSet) -> tuple[list[Effect], str | None]:
    asked, steps, settings = pinned_selection(newer)
    before, old_steps, old_settings = pinned_selection(older)
    base = decided(connection, asked, steps, settings)

    def variants() -> Iterator[tuple[str, Callable[[], pl.DataFrame]]]:
        if before.rubrics != asked.rubrics:
            other = asked.model_copy(update={"rubrics": before.rubrics})
            yield "rubric", lambda: decided(connection, other, steps, settings)
        if (before.advantage, before.overlong) != (asked.advantage, asked.overlong):
            told = asked.model_copy(update={"advantage": before.advantage, "overlong": before.overlong})
            yield "advantage", lambda: decided(connection, told, steps, settings)
        if [one.sql for one in old_steps] != [one.sql for one in steps] or (old_settings, before.max_staleness) != (
            settings,
            asked.max_staleness,
        ):
            stale = asked.model_copy(update={"max_staleness": before.max_staleness})
            yield "filter", lambda: decided(connection, stale, old_steps, old_settings)
        known = _known(connection, older)
        yield "data", lambda: base.with_columns(keep=pl.col("keep") & pl.col("source").is_in(known["sources"]))
        strange = _of_other_engines(connection, newer, known["engines"])
        yield "engine", lambda: base.with_columns(keep=pl.col("keep") & ~pl.col("episode_id").is_in(strange))

    effects, note = [], None
    for what, make in variants():
        without = make()
        if what == "rubric" and _unjudged(base, without):
            note = f"{', '.join(before.rubrics)} has not judged all of these episodes: `lakeloop label` judges them"
            continue
        effects.append(_effect(what, base, without))
    return sorted((one for one in effects if one.share > 0), key=lambda one: -one.share), note


def _unjudged(base: pl.DataFrame, without: pl.DataFrame) -> int:
    """Kept episodes that the other rubrics have not judged, which says nothing of how they would."""
    kept = base.filter("keep").select("episode_id")
    return without.join(kept, on="episode_id", how="semi").filter(pl.col("reason") == "unlabelled").height


def _known(connection: Connection, older: TrainingSet) -> Row:
    """Sources and engines of the older set's episodes."""
    (row,) = records(
        connection,
        """
        with used as (
            select distinct episode_id from unnest($1::varchar[]) as ids (episode_id)
        )

        select
            (
                select list(distinct permissions.source)
                from used
                inner join episodes using (episode_id)
                inner join permissions
                    on
                        episodes.problem_id = permissions.problem_id
                        and episodes.problem_edition is not distinct from permissions.edition
            ) as sources,
            (
                select list(distinct calls.engine_version || ' ' || calls.template_digest)
                from used
                inner join calls using (episode_id)
            ) as engines
        """,
        [_episodes(connection.lake, older)],
    )
    return {name: value or [] for name, value in row.items()}


def _of_other_engines(connection: Connection, newer: TrainingSet, engines: list[str]) -> list[str]:
    """Episodes of the newer set with a call by an engine or template that the older set does not have."""
    rows = records(
        connection,
        """
        select distinct episode_id
        from calls
        semi join (select unnest($1::varchar[]) as episode_id) using (episode_id)
        where not list_contains($2::varchar[], engine_version || ' ' || template_digest)
        """,
        [_episodes(connection.lake, newer), engines],
    )
    return [row["episode_id"] for row in rows]


def _episodes(lake: str, known: TrainingSet) -> list[str]:
    """The set's episodes; its rows are newer than the tables that it pinned."""
    with connect(lake) as connection:
        rows = records(
            connection, "select episode_id from trained_on where training_set_id = $1", [known.training_set_id]
        )
    return [row["episode_id"] for row in rows]


def _effect(what: str, base: pl.DataFrame, without: pl.DataFrame) -> Effect:
    kept = [one.filter("keep").select("episode_id", "advantage") for one in (base, without)]
    both = kept[0].join(kept[1], on="episode_id", how="full", coalesce=True, suffix="_without")
    now, then = pl.col("advantage"), pl.col("advantage_without")
    moved = (now.fill_null(0) - then.fill_null(0)).abs()
    larger = pl.max_horizontal(now.abs().fill_null(0), then.abs().fill_null(0))
    sums = both.select(
        only_now=then.is_null().sum(),
        only_without=now.is_null().sum(),
        mean_advantage=now.abs().mean(),
        mean_advantage_without=then.abs().mean(),
        share=moved.sum() / pl.max_horizontal(larger.sum(), pl.lit(1e-12)),
    ).row(0, named=True)
    return Effect(what=what, episodes=kept[0].height, episodes_without=kept[1].height, **sums)


def _verdict(here: list[Change], effects: list[Effect]) -> str:
    """The most likely cause among what changed at the suspect step, in words."""
    if effects and effects[0].share >= WORTH_NAMING:
        top = effects[0]
        said = f"most likely the {top.what}: it changed {top.share:.0%} of the training signal"
        rest = [f"{one.what} {one.share:.0%}" for one in effects[1:] if one.share >= WORTH_NAMING]
        return said + (f", against {', '.join(rest)}" if rest else "")
    unmeasured = sorted({one.aspect for one in here if one.aspect not in MEASURED and one.item not in WITH_OTHERS})
    if unmeasured:
        return (
            f"nothing that was selected changed by more than {WORTH_NAMING:.0%}; what is left is "
            f"{', '.join(unmeasured)}, which only training again can tell apart"
        )
    return "nothing that the lake knows of changed but the episodes themselves: new samples, or chance"
