"""One episode as a page of HTML: its turns, its tokens shaded by log-prob and by advantage, its tool calls, its rewards.

Rows are dictionaries with the lake's column names. Everything a model, a tool or a problem wrote is escaped.
"""

import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import polars as pl
from tokenizers import Tokenizer

from lakehouse.query import Connection

Row = Mapping[str, Any]

SURPRISE, GOOD, BAD, NEUTRAL = (
    "124, 58, 237",
    "20, 124, 210",
    "226, 84, 30",
    "122, 127, 148",
)  # blue and orange: safe for most eyes
DEEPEST = 0.55  # opacity of a colour at full strength: text stays readable, in light and in dark
SURPRISED = -4.0  # log-prob at full strength: a chance of 1 in 55
LARGE = 2.0  # advantage at full strength
LONG = 4000  # characters of a prompt or an observation
STYLE = Path(__file__).with_name("trajectories.css").read_text()


def entry(row: Row) -> str:
    """An episode in a list of many."""
    mark = {None: "·", 1.0: "✓"}.get(row["outcome"], "✗")
    version = row["mode"] if row["version"] is None else f"v{row['version']}"
    learnt = "" if row["advantage"] is None else f" · advantage {row['advantage']:+.2f}"
    name = f"{row['problem_id']} #{row['sample_index']}"
    return f"{row['started_at']:%d %b %H:%M:%S} · {mark} · {version} · {name}{learnt} · {row['episode_id'][:9]}"


def page(
    episode: Row,
    problem: str,
    facts: Mapping[str, str],
    siblings: pl.DataFrame,
    calls: Sequence[Row],
    actions: Sequence[Row],
    rows: Sequence[Row],
    tokenizer: Tokenizer | None,
) -> str:
    """The whole page. `siblings`: the episodes of its group; `rows`: its rows in one training set, maybe none."""
    known = {call["call_id"] for call in calls}
    strays = [action for action in actions if action["call_id"] not in known]
    parts = [head(episode, problem, siblings), legend(why(episode, siblings, rows))]
    for call in calls:
        parts.append(
            turn(call, [action for action in actions if action["call_id"] == call["call_id"]], rows, tokenizer)
        )
    if strays:
        parts.append(
            f'<div class="turn"><div class="quiet">outside any model call</div>{"".join(map(tool, strays))}</div>'
        )
    parts += [fact(name, value) for name, value in facts.items()]
    return f'<style>{STYLE}</style><div class="episode">{"".join(parts)}</div>'


def head(episode: Row, problem: str, siblings: pl.DataFrame) -> str:
    """How it ended, what was asked, and how its group did."""
    verdict, tone = {None: ("not judged", NEUTRAL), 1.0: ("solved", GOOD)}.get(episode["outcome"], ("not solved", BAD))
    reward = "no reward" if episode["reward"] is None else f"reward {episode['reward']:.3g}"
    version = "a demonstration" if episode["version"] is None else f"{episode['model']} v{episode['version']}"
    about = [
        version,
        f"{episode['turns']} turns",
        f"{episode['tokens']} sampled tokens",
        episode["purpose"],
        f"status {episode['status']}",
        *([episode["error"]] if episode["error"] else []),
    ]
    group = "".join(sibling(row, row["episode_id"] == episode["episode_id"]) for row in siblings.head(64).to_dicts())
    return f"""
        <div><span class="verdict" style="background: rgb({tone})">{verdict}</span> <b>{reward}</b>
        <span class="quiet">{escape(" · ".join(about))}</span></div>
        <pre class="problem">{escape(clipped(problem))}</pre>
        <div class="quiet">rewards in its group {group}</div>"""


def sibling(row: Row, this: bool) -> str:
    """An episode of the group as its reward in a box."""
    shade = "transparent" if row["reward"] is None else f"rgba({GOOD if row['outcome'] == 1 else BAD}, 0.25)"
    text = "?" if row["reward"] is None else f"{row['reward']:.2g}"
    return f'<span class="sibling{" this" if this else ""}" style="background: {shade}">{text}</span>'


def why(episode: Row, siblings: pl.DataFrame, rows: Sequence[Row]) -> str:
    """The advantage it was trained with, or why it has none."""
    if rows:
        first = rows[0]
        return f"{first['advantage']:+.2f} ({first['objective']} from v{first['policy_version']}, {first['training_set_id'][:11]})"
    if episode["split"] == "eval":
        return "none, held-out problems are never trained on"
    if episode["mode"] == "policy" and len(siblings) > 1 and siblings["outcome"].drop_nulls().n_unique() == 1:
        return "none, all of its group ended alike"
    return "none, it is in no training set"


def legend(advantage: str) -> str:
    """What the two columns show."""
    surprise = f"linear-gradient(90deg, transparent, rgba({SURPRISE}, {DEEPEST}))"
    gain = f"linear-gradient(90deg, rgba({BAD}, {DEEPEST}), transparent, rgba({GOOD}, {DEEPEST}))"
    return f"""<div class="pair legend">
        <div><b>log-prob</b> when it was sampled
        <span class="scale">0 <i style="background: {surprise}"></i> {SURPRISED:g}</span></div>
        <div><b>advantage</b> {escape(advantage)}
        <span class="scale">{-LARGE:g} <i style="background: {gain}"></i> +{LARGE:g}</span></div></div>"""


def turn(call: Row, actions: Sequence[Row], rows: Sequence[Row], tokenizer: Tokenizer | None) -> str:
    """One model call: its tokens by log-prob and again by advantage, then the tool calls it made."""
    ids = call["completion_token_ids"]
    logprobs = call["logprobs"] or [None] * len(ids)
    about = [
        ", ".join("demonstration" if v < 0 else f"v{v}" for v in dict.fromkeys(call["weight_versions"])),
        f"{len(ids)} tokens",
        *([f"mean log-prob {sum(logprobs) / len(ids):.2f}"] if call["logprobs"] else []),
        call["finish_reason"] or call["status"],
        *([f"forked: {call['fork_reason']}"] if call["segment"] else []),
    ]
    left, right = [], []
    for text, token, logprob, gain in zip(pieces(tokenizer, ids), ids, logprobs, advantages(call, rows), strict=True):
        left.append(by_logprob(text, token, logprob))
        right.append(by_advantage(text, token, gain))
    said = (json.loads(call["response_message"]) or {}).get("content") or ""  # null: it ended without an answer
    words = f'<pre class="said">{escape(clipped(said))}</pre>' if said and tokenizer is None else ""
    return f"""<div class="turn">
        <div class="quiet"><b>turn {call["call_index"] + 1}</b> · {escape(" · ".join(about))}</div>{words}
        <div class="pair"><pre class="tokens">{"".join(left)}</pre><pre class="tokens">{"".join(right)}</pre></div>
        {"".join(map(tool, actions))}</div>"""


def by_logprob(text: str, token: int, logprob: float | None) -> str:
    """A token, the darker the less likely it was. A demonstration has no log-probs."""
    if logprob is None:
        return shaded(text, f"token {token}, no log-prob: not sampled from a policy", SURPRISE, 0)
    return shaded(text, f"token {token}, log-prob {logprob:.3f}", SURPRISE, logprob / SURPRISED)


def by_advantage(text: str, token: int, gain: float | None) -> str:
    """A token, blue where training made it more likely, orange where less, pale where it was not trained on."""
    if gain is None:
        return f'<span class="untrained">{shaded(text, f"token {token}, not trained on", NEUTRAL, 0)}</span>'
    return shaded(text, f"token {token}, advantage {gain:+.2f}", GOOD if gain > 0 else BAD, abs(gain) / LARGE)


def shaded(text: str, about: str, colour: str, strength: float) -> str:
    """Text on a colour ("r, g, b"), of strength 0 to 1."""
    opacity = DEEPEST * min(1.0, max(0.0, strength))
    shown = escape(text).replace("\n", "<i>↵</i>\n")
    return f'<span title="{about}" style="background: rgba({colour}, {opacity:.2f})">{shown}</span>'


def tool(action: Row) -> str:
    """A tool call with what came back."""
    try:
        given = json.loads(action["arguments"])
    except ValueError:
        given = None  # malformed: shown as the model wrote it
    if isinstance(given, dict):
        lines = "\n".join(f"<i>{escape(name)}</i> {escape(str(value))}" for name, value in given.items())
    else:
        lines = escape(action["arguments"])
    return f"""<div class="tool{" error" if action["is_error"] else ""}">
        <div><b>{escape(action["tool"])}</b> <span class="quiet">{action["duration_s"]:.2f} s</span>
        <pre>{lines}</pre></div><pre class="seen">{escape(clipped(action["observation"]))}</pre></div>"""


def fact(name: str, value: str) -> str:
    """A measured fact: what the reward was made from."""
    title = f'<span class="quiet">evidence</span> <b>{escape(name)}</b>'
    return f'<div class="fact">{title} <code>{escape(clipped(value))}</code></div>'


def clipped(text: str) -> str:
    """Text, of which a long one says how much is left out."""
    return text if len(text) <= LONG else f"{text[:LONG]}\n… {len(text) - LONG:,} more characters"


def advantages(call: Row, rows: Sequence[Row]) -> list[float | None]:
    """The advantage each sampled token was trained with; None where it was not trained on."""
    start = len(call["prompt_token_ids"])
    ids = call["prompt_token_ids"] + call["completion_token_ids"]
    for row in rows:  # a call that two rows share is trained in one of them
        mask = row["loss_mask"][start : len(ids)]
        if any(mask) and row["input_ids"][: len(ids)] == ids:
            return [row["advantage"] if trained else None for trained in mask]
    return [None] * len(call["completion_token_ids"])


def pieces(tokenizer: Tokenizer | None, ids: Sequence[int]) -> list[str]:
    """The text of each token, or its id without a tokenizer. A character of several tokens stands at the last of them."""
    if tokenizer is None:
        return [f"{token} " for token in ids]
    texts: list[str] = []
    held: list[int] = []
    for token in ids:
        held.append(token)
        text = tokenizer.decode(held, skip_special_tokens=False)
        whole = not text.endswith("\N{REPLACEMENT CHARACTER}") or len(held) == 4  # UTF-8 takes at most four bytes
        texts.append(text if whole else "")
        held = [] if whole else held
    return texts


def tokenizer_of(lake: Connection, model: str) -> Tokenizer | None:
    """The tokenizer of the newest version of a model whose folder is on this machine, or None."""
    folders = lake.execute("select weights_path from model_versions where name = $1 order by version desc", [model])
    files = (Path(folder, "tokenizer.json") for (folder,) in folders.fetchall())
    found = next((file for file in files if file.is_file()), None)
    return Tokenizer.from_file(str(found)) if found else None
