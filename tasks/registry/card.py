"""The model card of a version: README.md among its artifacts, and its description in MLflow.

In the order of Mitchell et al., "Model Cards for Model Reporting" (2019): what it is, what it may be used for, how it was
evaluated, what it was trained on. It is written anew when something about the version becomes known; the weights never change.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lakehouse.lineage.cards import Facts

BARS = "▁▂▃▄▅▆▇█"
WIDTH = 24  # bars of a curve
ANCESTORS = 6  # that are shown
CURVES = {
    "loss": "loss per trained token",
    "entropy": "entropy, nats",
    "kl_to_proximal": "KL to the proximal policy, nats per token",
    "agreement/mean": "trainer against engine, nats",
}
FIGURES = ("reward", "loss", "kl", "ratio", "agreement")

Entry = Mapping[str, Any]


def card(facts: Facts, *, entries: Sequence[Entry] = (), diagnosis: Sequence[str] = (), mlflow_url: str = "") -> str:
    """Markdown. `entries`: lines of the training run's `metrics.jsonl`; `diagnosis`: what keeps it from learning, in words."""
    parts = [
        _head(facts),
        _load(facts, mlflow_url),
        _uses(facts),
        _evaluation(facts),
        _training(facts),
        _curves(facts, entries, diagnosis, mlflow_url),
        _lineage(facts),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _head(facts: Facts) -> str:
    held = facts.why.version
    made = (
        f"trained from version {held.parent_version}" if held.parent_version is not None else "not trained from another"
    )
    if held.learnt_from:
        made += f", with {', '.join(held.learnt_from)} as teacher or reference"
    lines = [
        f"# {held.name} version {held.version}",
        f"Stage `{held.stage}`, {made}, registered {held.created_at:%Y-%m-%d %H:%M} UTC.",
    ]
    if facts.tainted:
        lines.append(
            f"**Tainted**: erasure `{facts.tainted}` removed rows that this version, or one it comes from, was trained on. It "
            "is neither promoted nor served, and should not be used."
        )
    return "\n\n".join(lines)


def _load(facts: Facts, mlflow_url: str) -> str:
    held = facts.why.version
    return f"""## Load it

```python
import mlflow

mlflow.set_tracking_uri("{mlflow_url}")
parts = mlflow.transformers.load_model("models:/{held.name}/{held.version}", return_type="components")
model, tokenizer = parts["model"], parts["tokenizer"]
```

vLLM: `vllm serve FOLDER`, with the folder in the tag `weights_path`; SHA-256 of the weights `{held.weights_digest}`."""


def _uses(facts: Facts) -> str:
    held = facts.why.version
    licences = (
        "not known: weights from elsewhere" if held.licences is None else ", ".join(held.licences) or "none declared"
    )
    uses = (
        "not known" if held.allowed_uses is None else ", ".join(held.allowed_uses) or "none that all of the data allows"
    )
    return (
        "## Licences and allowed uses\n\nInherited from all data that trained it or a version it comes from; the licence of the "
        f"base weights applies as well.\n\n* Licences of the data: {licences}\n* Allowed uses: {uses}"
    )


def _evaluation(facts: Facts) -> str:
    parts = []
    if facts.gates:
        parts.append("| gate | compared with | passed | why not |\n|---|---|---|---|\n" + _lines(
            f"| {one['decided_at']:%Y-%m-%d %H:%M} by {one['decided_by']} | {_version(one['champion'])} | "
            f"{'yes' if one['passed'] else '**no**'} | {_cell('; '.join(one['reasons']))} |"
            for one in facts.gates
        ))  # fmt: skip
    if facts.success:
        parts.append("| episodes of | problems | rubric | scored | solved |\n|---|---|---|---|---|\n" + _lines(
            f"| {_cell(one['purpose'])} | {one['problem_kind']} | {one['rubric']} | {one['scored']} of {one['episodes']} | "
            f"{_share(one['success'])} |"
            for one in facts.success
        ))  # fmt: skip
    parts.append(_lines(
        f"* Reward hacks in {one['severe']} of {one['episodes']} {one['problem_kind']} episodes ({_cell(one['purpose'])}): "
        f"{', '.join(one['detectors'])}"
        for one in facts.hacks
    ))  # fmt: skip
    parts.append(_lines(
        f"* Weight-sync proof on {one['engine_url']}, {one['deployed_at']:%Y-%m-%d %H:%M}: "
        f"{'accepted' if one['accepted'] else '**refused**'}, {one['reason']}"
        for one in facts.proofs
    ))  # fmt: skip
    told = "\n\n".join(part for part in parts if part)
    return "## Evaluation\n\n" + (told or "Nothing has been measured of this version so far.")


def _training(facts: Facts) -> str:
    known, why = facts.training_set, facts.why
    if known is None:
        return ""
    ledger = why.ledger
    problems = ", ".join(f"{one['problems']} {one['problem_kind']}" for one in facts.problems)
    lines = [
        f"* Training set `{known.training_set_id}`: objective {known.objective}, {known.n_rows} rows of {known.n_episodes} "
        f"episodes, {known.n_trained_tokens} trained tokens",
        f"* Rubrics: {', '.join(known.rubrics)}; filter: {known.filter}",
        f"* Problems: {problems or 'none'}",
        f"* Delta versions: {', '.join(f'{table} {number}' for table, number in sorted(known.pinned_versions.items()))}",
    ]
    if ledger is not None:
        lost = ", ".join(f"{reason} {count}" for reason, count in {**ledger.masked, **ledger.dropped}.items())
        lines.append(f"* Tokens: {ledger.sampled} sampled, {ledger.trained} trained; the others: {lost or 'none'}")
    return "## Training data\n\n" + "\n".join(lines)


def _curves(facts: Facts, entries: Sequence[Entry], diagnosis: Sequence[str], mlflow_url: str) -> str:
    """A line of bars per metric, from its least to its greatest value, and the pictures that MLflow has."""
    names = CURVES | {
        name: f"reward, {name.partition('/')[2]}" for entry in entries for name in entry if name.startswith("reward/")
    }
    rows = []
    for name, label in names.items():
        values = [float(entry[name]) for entry in entries if name in entry]
        if values:
            rows.append(f"| {label} | {values[0]:.4g} | {values[-1]:.4g} | {_bars(values)} |")
    if not rows:
        return ""
    parts = ["| metric | first | last | curve |\n|---|---|---|---|\n" + "\n".join(rows)]
    if diagnosis:
        parts.append("\n".join(f"* {one}" for one in diagnosis))
    run = facts.why.version.mlflow_run_id
    if run and mlflow_url:
        pictures = ", ".join(
            f"[{name}]({mlflow_url}/get-artifact?run_uuid={run}&path=figures%2F{name}.png)" for name in FIGURES
        )
        parts.append(f"MLflow: [run]({mlflow_url}/#/runs/{run}); pictures, where they were drawn: {pictures}")
    return "## Training run\n\n" + "\n\n".join(parts)


def _lineage(facts: Facts) -> str:
    held, parents = facts.why.version, facts.why.ancestors
    shown = [f"version {one.version} ({one.stage})" for one in parents]
    if len(shown) > ANCESTORS:
        shown = [*shown[: ANCESTORS - 1], f"{len(shown) - ANCESTORS} more", shown[-1]]
    chain = " ← ".join([f"version {held.version} ({held.stage})", *shown])
    commit = f"\n* Code: commit `{held.commit}`" if held.commit else ""
    return f"## Lineage\n\n* {chain}{commit}\n* Everything: `lakeloop why {held.name}@{held.version}`"


def _lines(lines: Iterable[str]) -> str:
    return "\n".join(lines)


def _bars(values: Sequence[float]) -> str:
    step = max(1, -(-len(values) // WIDTH))
    points = [values[start] for start in range(0, len(values), step)]
    low, high = min(points), max(points)
    scale = (len(BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(BARS[round((one - low) * scale)] for one in points)


def _version(number: int | None) -> str:
    return "none" if number is None else f"version {number}"


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
