"""Copies of a selection in the forms that other trainers read: verl's and TRL's datasets. Columns: docs/export.md.

Checked against verl 0.9 (`verl.utils.dataset.RLHFDataset`, `MultiTurnSFTDataset`) and TRL 1.16 (its dataset formats and
`SFTTrainer`'s pre-tokenised rows).
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakehouse.governance.audit import note
from lakehouse.query import Connection, QueryError, connect
from lakehouse.records import dumps

USES = ("training", "evaluation")
Row = dict[str, Any]
MASKED = -100  # a label that no loss counts, in PyTorch and TRL


class NotExportable(ValueError):
    """Nothing of the selection may leave, or not in this form. The text says why and what would."""


@dataclass(frozen=True)
class _Source:
    """Where rows come from. `objects`: arguments of tool calls as objects, as chat templates want them, not as JSON text."""

    connection: Connection
    training_set_id: str | None
    objects: bool


@dataclass(frozen=True)
class Exported:
    """`rows` written. Every selected episode is among `episodes`, or counted in `left_out` by its reason."""

    rows: int
    episodes: int
    left_out: dict[str, int]


def export(
    lake: str | None, form: str, shape: str, to: Path, *, episodes: str | None, training_set_id: str | None, use: str
) -> Exported:
    """Write a selection to a .jsonl or .parquet file, whole or not at all.

    `episodes` is SQL with a column episode_id, `training_set_id` a pinned set; with neither, every episode is selected.
    `use`: "training", or "evaluation", which takes what is held out as well. NotExportable where the form has no such shape
    or file, or nothing is left.
    """
    rows_of = _rows_of(form, shape)
    if use not in USES:
        raise NotExportable(f"a copy is for {' or '.join(USES)}, not for {use!r}")
    if to.suffix not in (".jsonl", ".parquet"):
        raise NotExportable(f"{to.name}: the file's name must end in .jsonl or .parquet")
    if (form, shape) == ("verl", "episodes") and to.suffix != ".parquet":
        raise NotExportable("verl reads conversations from .parquet only")
    if shape == "tokens" and training_set_id is None:
        raise NotExportable("tokens are exported of a training set: --training-set ID")
    with connect(lake) as connection:
        _select(connection, episodes, training_set_id, use)
        left_out = Counter(
            dict(_fetch(connection, "select reason, count(*) from chosen where reason is not null group by 1"))
        )
        kept = int(_fetch(connection, "select count(*) from chosen where reason is null")[0][0])
        rows = list(rows_of(_Source(connection, training_set_id, objects=to.suffix == ".jsonl")))
    reasons = dict(sorted(left_out.items()))
    if not rows:
        why = ", ".join(f"{count} {reason}" for reason, count in reasons.items()) or "no episode is selected"
        raise NotExportable(f"nothing to export for {use}: {why}")
    _write(rows, to)
    told = {"form": f"{form} {shape}", "use": use, "rows": len(rows), "episodes": kept, "left_out": reasons}
    note(lake, "export", training_set_id or "episodes", told)
    return Exported(len(rows), kept, reasons)


def _select(connection: Connection, episodes: str | None, training_set_id: str | None, use: str) -> None:
    """The table `chosen`: the selected episodes with their reasons against."""
    if training_set_id is not None:
        if not _fetch(connection, "select 1 from training_sets where training_set_id = $1", [training_set_id]):
            raise NotExportable(
                f"no training set {training_set_id!r}: `lakeloop query 'from training_sets'` lists them"
            )
        source = f"select distinct episode_id from training_rows where training_set_id = '{training_set_id}'"  # noqa: S608
    else:
        source = episodes or "select episode_id from episodes"
    connection.execute(f"set variable use = '{use}'")
    try:
        connection.execute(
            f"""
            create temp table chosen as
            select exportable.* from exportable semi join ({source}) using (episode_id)
            """  # noqa: S608 - SQL by contract, and the connection only reads
        )
    except QueryError as error:
        raise NotExportable(f"the selection must be SQL with a column episode_id: {error}") from error


def _fetch(connection: Connection, sql: str, values: list[Any] | None = None) -> list[tuple[Any, ...]]:
    return connection.execute(sql, values or []).fetchall()


def _records(connection: Connection, sql: str, values: list[Any] | None = None) -> list[Row]:
    found: list[Row] = connection.execute(sql, values or []).to_arrow_table().to_pylist()
    return found


# ---- prompts: one row per problem, for a trainer that samples itself


def _prompts(connection: Connection) -> list[Row]:
    """Problems of the kept episodes, each as its first episode was shown it, and how they went."""
    return _records(
        connection,
        """
        with shown as (
            select episode_id, arg_min(request_messages, call_index) as messages
            from calls
            group by episode_id
        )

        select
            chosen.problem_id,
            problem_edition,
            problem_kind,
            any_value(split) as split,
            any_value(licence) as licence,
            any_value(ground_truth) as ground_truth,
            arg_min(messages, started_at) as messages,
            count(*) as episodes,
            avg(outcome) as success
        from chosen
        inner join shown using (episode_id)
        inner join ground_truths
            on chosen.problem_id = ground_truths.problem_id and chosen.problem_edition is not distinct from ground_truths.edition
        where reason is null
        group by chosen.problem_id, problem_edition, problem_kind
        order by chosen.problem_id, problem_edition
        """,
    )


def _verl_prompts(source: _Source) -> Iterator[Row]:
    for index, row in enumerate(_prompts(source.connection)):
        yield {
            "data_source": f"lakeloop/{row['problem_kind']}",
            "prompt": _plain(json.loads(row["messages"]), source),
            "ability": row["problem_kind"],
            "reward_model": {"style": "rule", "ground_truth": row["ground_truth"]},
            "extra_info": {"index": index, **_about(row)},
        }


def _trl_prompts(source: _Source) -> Iterator[Row]:
    for row in _prompts(source.connection):
        kind = f"lakeloop/{row['problem_kind']}"
        yield {
            "prompt": _plain(json.loads(row["messages"]), source),
            "ground_truth": row["ground_truth"],
            "data_source": kind,
            **_about(row),
        }


def _about(row: Mapping[str, Any]) -> Row:
    names = ("problem_id", "problem_edition", "split", "licence", "episodes", "success")
    return {name: row[name] for name in names}


# ---- episodes: one row per conversation, with its reward


@dataclass(frozen=True)
class _Conversation:
    """A segment of an episode's call tree: `prompt` was given, `completion` has the sampled turns and the tools' answers.

    Tools stay JSON text, which TRL parses: in a Parquet column of schemas each tool would get the fields of all.
    """

    row: Row
    prompt: list[Row]
    completion: list[Row]


def _conversations(connection: Connection) -> Iterator[_Conversation]:
    """Each sampled turn is in one conversation's completion: where history was rewritten, another conversation begins."""
    rows = _records(
        connection,
        """
        select
            chosen.episode_id, problem_id, problem_edition, group_id, run_id, mode, model_name, model_version, outcome, reward,
            rubric, segment,
            arg_min(request_messages, call_index) as first, arg_max(request_messages, call_index) as last,
            arg_max(response_message, call_index) as answer, arg_max(tools, call_index) as tools
        from chosen
        inner join calls using (episode_id)
        where reason is null and calls.status in ('ok', 'truncated', 'model_error') and response_message <> 'null'
        group by all
        order by group_id, episode_id, segment
        """,
    )
    for row in rows:
        given, last = json.loads(row["first"]), json.loads(row["last"])
        yield _Conversation(row, given, [*last[len(given) :], json.loads(row["answer"])])


def _verl_episodes(source: _Source) -> Iterator[Row]:
    """verl trains every assistant turn it is shown, so a conversation that another one contains is left out."""
    found = [(one, dumps([*one.prompt, *one.completion])[:-1]) for one in _conversations(source.connection)]
    of_episode: dict[str, set[str]] = {}
    for one, text in found:
        of_episode.setdefault(one.row["episode_id"], set()).add(text)
    for one, text in found:
        if not any(other.startswith(text) for other in of_episode[one.row["episode_id"]] - {text}):
            messages = _plain([*one.prompt, *one.completion], source)
            yield {"messages": messages, "tools": one.row["tools"], **_judged(one.row)}


def _trl_episodes(source: _Source) -> Iterator[Row]:
    for one in _conversations(source.connection):
        label = one.row["outcome"] >= 1
        tools = {"tools": one.row["tools"]}
        yield {
            "prompt": _plain(one.prompt, source),
            "completion": _plain(one.completion, source),
            **tools,
            "label": label,
            **_judged(one.row),
        }


def _judged(row: Mapping[str, Any]) -> Row:
    names = (
        "reward",
        "outcome",
        "rubric",
        "episode_id",
        "segment",
        "group_id",
        "problem_id",
        "run_id",
        "mode",
        "model_version",
    )
    return {name: row[name] for name in names}


def _plain(messages: Iterable[Mapping[str, Any]], source: _Source) -> list[Row]:
    """Messages with one set of fields, none of them null but those that a role does not have."""
    return [
        {
            "role": message["role"],
            "content": message["content"] if isinstance(message.get("content"), str) else _text(message.get("content")),
            **(
                {"tool_calls": [_call(call, source) for call in message["tool_calls"]]}
                if message.get("tool_calls")
                else {}
            ),
            **({"tool_call_id": message["tool_call_id"]} if message.get("tool_call_id") else {}),
        }
        for message in messages
    ]


def _call(call: Mapping[str, Any], source: _Source) -> Row:
    function = dict(call["function"])
    if source.objects:
        function["arguments"] = _object(function["arguments"])
    named = {name: function[name] for name in ("name", "arguments")}
    return {"id": call["id"], "type": "function", "function": named}


def _object(arguments: str) -> Row:
    """Arguments as an object; text that is none in a field of its own, since a column has one type."""
    try:
        found = json.loads(arguments)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"malformed": arguments}


def _text(content: Any) -> str:
    """Content that is a list of parts, as the text in it."""
    return "".join(part.get("text", "") for part in content or [] if isinstance(part, Mapping))


# ---- tokens: one row per training row, exactly as sampled


def _trl_tokens(source: _Source) -> Iterator[Row]:
    rows = _records(
        source.connection,
        """
        select training_rows.*
        from training_rows
        semi join (from chosen where reason is null) using (episode_id)
        where training_set_id = $1
        order by row_index
        """,
        [source.training_set_id],
    )
    for row in rows:
        labels = [
            token if trained else MASKED for token, trained in zip(row["input_ids"], row["loss_mask"], strict=True)
        ]
        names = ("logprobs", "weight_versions", "reward", "advantage", "episode_id", "group_id", "row_index")
        own = (
            {} if row["advantages"] is None else {"advantages": row["advantages"]}
        )  # credit that differs along the row
        yield {"input_ids": row["input_ids"], "labels": labels, **{name: row[name] for name in names}, **own}


Rows = Callable[[_Source], Iterator[Row]]
FORMS: dict[str, dict[str, Rows]] = {  # the first shape of each is its default
    "verl": {"prompts": _verl_prompts, "episodes": _verl_episodes},
    "trl": {"episodes": _trl_episodes, "prompts": _trl_prompts, "tokens": _trl_tokens},
}


def _rows_of(form: str, shape: str) -> Rows:
    if form not in FORMS:
        raise NotExportable(f"no form is called {form!r}; there are {', '.join(FORMS)}")
    if shape not in FORMS[form]:
        raise NotExportable(f"{form} has no file of {shape}; there are {', '.join(FORMS[form])}")
    return FORMS[form][shape]


def _write(rows: Sequence[Row], to: Path) -> None:
    """Beside its place first, so that nobody reads half a file."""
    to.parent.mkdir(parents=True, exist_ok=True)
    part = to.with_name(f".{to.name}.part")
    if to.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(list(rows)), part)
    else:
        part.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    part.replace(to)
