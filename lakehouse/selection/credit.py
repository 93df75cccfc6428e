"""Credit: which part of an episode's reward each of its calls gets; `estimators.py` makes advantages of it.

`outcome`: every token has its episode's advantage. `steps`: R = r + discount * R(main child) over the call tree, as the
gateway's `/export_trajectories` has it: r is what a rubric gave the call; what an episode was given beyond its calls goes
to the last call of its main line. A call that no reward reaches has no credit, and is not trained: nothing is no zero.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from lakehouse.query import Connection
from lakehouse.selection.estimators import Estimator, step_advantages

# The answered calls of `scored`. What the episode's own rubric gave its calls is part of what it gave the episode (`within`).
_TREE = """
    with judged as (
        select
            episode_id,
            call_id,
            sum(latest_call_rewards.reward) as reward,
            sum(latest_call_rewards.reward) filter (
                where latest_call_rewards.rubric || '@' || latest_call_rewards.rubric_version = scored.rubric
            ) as within
        from latest_call_rewards
        inner join scored using (episode_id)
        where list_contains(
            getvariable('rubrics')::varchar[],
            latest_call_rewards.rubric || '@' || latest_call_rewards.rubric_version
        )
        group by episode_id, call_id
    )

    select
        number,
        position,
        episode_id,
        call_id,
        call_index,
        coalesce(continues_call_id, parent_call_id) as parent_call_id,
        coalesce(fork_reason in ('retry', 'sibling'), false) as again,
        if(coalesce(continues_call_id, parent_call_id) is null, (hash(prompt_token_ids) >> 1)::bigint, 0) as prompt,
        judged.reward,
        judged.within
    from calls
    inner join scored using (episode_id)
    left join judged using (episode_id, call_id)
    where response_message <> 'null'
    order by position, call_index
"""

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Tree:
    """Answered calls, sorted by episode and call_index; one value each."""

    episode: Ints  # number of the episode, from 0
    parent: Ints  # row of the call that it goes on from; -1 where a line begins
    again: Bools  # another try at a prompt: a retry, or a further choice of one request
    prompt: Ints  # equal for equal prompts; only looked at where a line begins
    reward: Floats  # of the call itself, NaN where nobody judged it


def by_call(
    connection: Connection, episodes: pl.DataFrame, calls: pa.Table, discount: float, estimator: Estimator
) -> Floats:
    """The advantage of each of `calls` under `steps`, NaN without credit.

    `episodes`: position, episode_id, group_id, rubric, shaped (the reward that counts), keep; `calls` has their position and
    call_index. A group's baseline is made of all its scored episodes, whether or not they are kept. Rewards of calls are those
    of the rubrics in the connection's variable `rubrics`.
    """
    groups = episodes.filter("keep").select("group_id").unique()
    scored = (
        episodes.join(groups, on="group_id", how="semi", maintain_order="left")
        .drop_nulls("shaped")
        .with_columns(group=pl.col("group_id").rank("dense").cast(pl.Int64))
        .with_row_index("number")
    )
    connection.register("scored", scored.select("number", "position", "episode_id", "rubric").to_arrow())
    found = connection.sql(_TREE).to_arrow_table()
    tree = Tree(
        episode=found["number"].to_numpy().astype(np.int64),
        parent=pc.fill_null(parents(found), -1).to_numpy(),
        again=found["again"].to_numpy(),
        prompt=found["prompt"].to_numpy(),
        reward=pc.fill_null(found["reward"], float("nan")).to_numpy(),
    )
    within = np.bincount(tree.episode, pc.fill_null(found["within"], 0.0).to_numpy(), minlength=scored.height)
    credit = returns(tree, scored["shaped"].to_numpy() - within, discount)
    group = scored["group"].to_numpy()[tree.episode]
    told = pl.DataFrame(
        {
            "position": found["position"].to_numpy(),
            "call_index": found["call_index"].to_numpy(),
            "advantage": step_advantages(tree.episode, group, credit, estimator),
        }
    )
    wanted = pl.DataFrame({name: calls[name].to_numpy() for name in ("position", "call_index")})
    advantage = wanted.join(told, on=["position", "call_index"], how="left", maintain_order="left")["advantage"]
    return advantage.fill_null(float("nan")).to_numpy()


def parents(calls: pa.Table) -> pa.Array:
    """Row number of each call's parent by episode_id and parent_call_id, NULL for none or one that is not there."""
    key = pc.binary_join_element_wise(calls["episode_id"], calls["call_id"], " ")
    wanted = pc.binary_join_element_wise(calls["episode_id"], calls["parent_call_id"], " ")  # NULL for roots
    found = pc.if_else(pc.is_valid(wanted), pc.index_in(wanted, value_set=key.combine_chunks()), None)
    return found.cast(pa.int64())


def returns(tree: Tree, rest: Floats, discount: float) -> Floats:
    """R of each call, NaN where no reward reaches it. `rest`: per episode, what its last call gets on top."""
    generation = _generations(tree.parent)
    main, height = _main_children(tree.parent, generation)
    last = _ends_of_main_lines(tree, main, height)
    own = tree.reward.copy()
    ends = np.flatnonzero(last >= 0)
    own[last[ends]] = np.nan_to_num(own[last[ends]]) + rest[ends]
    credit = own.copy()
    for depth in range(int(generation.max(initial=0)) - 1, -1, -1):  # the deepest have no children
        here = np.flatnonzero((generation == depth) & (main >= 0))
        below = discount * credit[main[here]]
        reached = np.isfinite(below)
        credit[here[reached]] = np.nan_to_num(own[here[reached]]) + below[reached]
    return credit


def _generations(parent: Ints) -> Ints:
    """Steps up to the beginning of the line."""
    generation = np.zeros(len(parent), np.int64)
    call = np.flatnonzero(parent >= 0)
    up = parent[call]
    while len(call):
        generation[call] += 1
        up = parent[up]
        call, up = call[up >= 0], up[up >= 0]
    return generation


def _main_children(parent: Ints, generation: Ints) -> tuple[Ints, Ints]:
    """Of each call the child with the longest continuation, the earlier one of equals (-1: none), and its own length."""
    main, height = np.full(len(parent), -1), np.ones(len(parent), np.int64)
    for depth in range(int(generation.max(initial=0)), 0, -1):
        children = np.flatnonzero(generation == depth)
        best = _best(children, parent[children], height)
        main[parent[best]] = best
        height[parent[best]] = 1 + height[best]
    return main, height


def _best(calls: Ints, key: Ints, height: Ints) -> Ints:
    """For each key the call with the greatest height, the earliest of equals."""
    order = np.lexsort((calls, -height[calls], key))
    _, first = np.unique(key[order], return_index=True)
    return calls[order][first]


def _ends_of_main_lines(tree: Tree, main: Ints, height: Ints) -> Ints:
    """Per episode the last call of the line that begins at the first call, or the try at its prompt that went on longest."""
    heads = np.flatnonzero(tree.parent < 0)
    episodes, first = np.unique(tree.episode[heads], return_index=True)
    root = np.full(int(tree.episode.max(initial=-1)) + 1, -1)
    root[episodes] = heads[first]
    tries = heads[
        (root[tree.episode[heads]] == heads)
        | (tree.again[heads] & (tree.prompt[heads] == tree.prompt[root[tree.episode[heads]]]))
    ]
    end = root.copy()
    best = _best(tries, tree.episode[tries], height)
    end[tree.episode[best]] = best
    going = np.flatnonzero(end >= 0)
    while len(going := going[main[end[going]] >= 0]):
        end[going] = main[end[going]]
    return end
