"""Record types: the narrow waist between the parts. One class per table row; `schema.py` derives the tables from them.

Values are plain Python so that any layer can build them: JSON documents are kept as text (`str`), token lists as
`list[int]`. A log-prob is the natural logarithm of the probability of the sampled token after temperature and truncation
(vLLM's `processed_logprobs`), in nats.
"""

import hashlib
import json
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Status(StrEnum):
    """How an episode or a call ended. One taxonomy, everywhere."""

    OK = "ok"
    TRUNCATED = "truncated"  # the model ran out of tokens or turns
    MODEL_ERROR = "model_error"  # the model produced something unusable, such as a malformed tool call
    AGENT_ERROR = "agent_error"  # the harness around the model failed
    ENV_ERROR = "env_error"  # the problem's own environment failed
    INFRA_ERROR = "infra_error"  # engine, gateway, sandbox or disk failed: never a reward of 0
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"

    @property
    def trainable(self) -> bool:
        """Whether the outcome says something about the policy. Everything else has a NULL reward."""
        return self in (Status.OK, Status.TRUNCATED, Status.MODEL_ERROR)


Mode = Literal["policy", "demonstration"]
Split = Literal["train", "eval"]


def now() -> datetime:
    """The current time in UTC, with its zone."""
    return datetime.now(UTC)


def dumps(value: Any) -> str:
    """JSON with sorted keys and no spaces: equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def digest(*parts: str | bytes) -> str:
    """SHA-256 over length-prefixed parts, as 64 hex digits."""
    total = hashlib.sha256()
    for part in parts:
        raw = part.encode() if isinstance(part, str) else part
        total.update(len(raw).to_bytes(8, "big"))
        total.update(raw)
    return total.hexdigest()


def episode_id(run_id: str, problem_id: str, sample_index: int, edition: str | None = None) -> str:
    """The key of an episode, derived: a restarted run computes the same ids and continues with what is missing."""
    return "ep-" + digest(run_id, problem_id, str(sample_index), *_edition(edition))[:24]


def group_id(run_id: str, problem_id: str, edition: str | None = None) -> str:
    """Episodes of one edition of a problem in one run are one group: the baseline of group-relative objectives."""
    return "gr-" + digest(run_id, problem_id, *_edition(edition))[:24]


def _edition(edition: str | None) -> list[str]:
    return [] if edition is None else [edition]


class Record(BaseModel):
    """A row. Immutable; unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_enum_values=True)


class Problem(Record):
    """Something for a model to solve. Key: (problem_id, edition); the newest row of a problem_id holds."""

    problem_id: str  # "swe/semver/compare-0007", "search/factbook/pe-0003"
    kind: str  # "swe", "search"
    source: str  # the package or corpus it was made from
    split: Split
    title: str  # one line for people
    prompt: str  # the statement, as the agent shows it
    spec: str  # JSON; what the kind needs to build the environment and grade
    licence: str
    allowed_uses: list[str]  # must contain "training" to be trained on
    difficulty: float = Field(ge=0, le=1)
    oracle_passed: bool  # gate: the oracle scores full marks
    null_failed: bool  # gate: doing nothing scores none
    created_at: datetime
    edition: str | None = None  # `content` where it entered the lake; None in rows written before there were editions
    ungated: bool | None = (
        None  # True: it never went through the gates, whose columns are False; else they say what they said
    )

    @property
    def passed(self) -> bool:
        """Whether it passed both gates, without which it is neither drawn nor trained on."""
        return self.oracle_passed and self.null_failed and not self.ungated

    @property
    def content(self) -> str:
        """Digest of all that makes this edition what it is. What an earlier release did not know counts where it is there."""
        return digest(dumps(self.model_dump(exclude={"created_at", "edition"}, exclude_none=True)))[:16]


class Dispatch(Record):
    """The intent to run one episode, written before it starts. Key: episode_id.

    Remaining work = dispatches without an episode.
    """

    episode_id: str
    run_id: str
    group_id: str
    problem_id: str
    sample_index: int
    agent: str
    mode: Mode
    purpose: str  # "train", "demonstration", "eval:<stage>"
    created_at: datetime
    loop_id: str | None = None  # the loop that asked for it


class Episode(Record):
    """One attempt that ended. Key: episode_id; children with another attempt_id are orphans and no view shows them."""

    episode_id: str
    attempt_id: str
    run_id: str
    group_id: str
    problem_id: str
    problem_kind: str
    split: Split
    sample_index: int
    agent: str
    backend: str
    mode: Mode
    purpose: str
    status: Status
    error: str | None  # cause, for people
    session_id: str
    model_name: str
    model_version: int | None  # weight version served when the episode started; None for demonstrations
    n_calls: int
    n_prompt_tokens: int  # over all calls
    n_completion_tokens: int
    duration_s: float
    started_at: datetime
    ended_at: datetime
    problem_edition: str | None = None  # of the problem as this episode saw it
    subject: str | None = (
        None  # whose data it holds, such as a customer of an outside application: what erasure goes by
    )


class Call(Record):
    """One model call, token by token. Key: (episode_id, attempt_id, call_index)."""

    call_id: str
    session_id: str
    episode_id: str
    attempt_id: str
    call_index: int  # order of dispatch within the session
    parent_call_id: str | None  # the longest earlier call whose ids are a true prefix of these prompt ids
    segment: int  # 0 for the root chain; a new number where the chain forks
    fork_reason: str | None  # root, retokenised, compaction, subagent, retry, sibling, other; None: goes on
    prompt_token_ids: list[int]
    completion_token_ids: list[int]
    logprobs: list[float] | None  # one per completion token; None for demonstrations
    weight_versions: list[int]  # one per completion token; -1 for demonstrations
    token_status: Literal["exact", "missing"]
    token_route: Literal["generate", "chat", "demonstration"]
    status: Status
    finish_reason: str | None
    request_messages: str  # JSON
    response_message: str  # JSON
    tools: str  # JSON
    sampling: str  # JSON
    template_digest: str
    engine_version: str
    latency_s: float
    started_at: datetime
    redacted: list[int] | None = None  # per completion token, 1 where it was replaced before landing: never trained
    continues_call_id: str | None = (
        None  # what its line goes on from: the parent, or where history was rewritten the call
    )
    # whose line it takes up; None where a line begins, and in rows of an earlier release


class Action(Record):
    """One tool call and what came back. Key: (episode_id, attempt_id, action_index)."""

    episode_id: str
    attempt_id: str
    action_index: int
    call_id: str | None
    tool: str
    arguments: str  # JSON as the model wrote it, also when malformed
    observation: str
    is_error: bool
    duration_s: float
    started_at: datetime
    tree: str | None = (
        None  # digest of the work tree after it, where the run keeps them: an episode can branch from there
    )


class Evidence(Record):
    """A fact measured once by one producer; rewards are SQL over these. Key: (episode_id, attempt_id, name, producer)."""

    episode_id: str
    attempt_id: str
    name: str  # "tests", "patch", "answer", "retrieval", "judge"
    value: str  # JSON
    producer: str  # program and version that measured it; of a judge its model and the digest of what it is asked
    created_at: datetime


class Reward(Record):
    """One judgement of one episode by one rubric version; append-only.

    The newest row per (episode_id, rubric, rubric_version) holds.
    """

    episode_id: str
    rubric: str
    rubric_version: int
    outcome: float | None  # 1 solved, 0 not; filters use this, never the shaped reward
    reward: float | None  # what training uses; NULL where status is not "scored"
    status: Literal["scored", "no_evidence", "not_trainable"]
    components: str  # JSON
    labelled_at: datetime
    parameters: str | None = None  # JSON: the rubric's parameters it was judged with, defaults included
    rubric_digest: str | None = None  # of the rubric's SQL: one version is one text


class TrainingSet(Record):
    """A pinned selection. Key: training_set_id. One of a loop may be without rows: a batch that gave nothing to train on."""

    training_set_id: str
    objective: str  # the trainer's name for it: "sft", "grpo"
    rubrics: list[str]  # "swe@1"
    filter: str
    table_versions: str  # JSON: Delta version of every input table
    policy_version: int  # the version training starts from
    n_rows: int
    n_episodes: int
    n_trained_tokens: int
    ledger: str  # JSON: sampled = trained + masked(reason) + dropped(reason)
    digest: str  # over the rows, in order
    created_at: datetime
    selection: str | None = None  # JSON: everything that was asked for; None in sets of an earlier release
    licences: list[str] | None = None  # of the problems and sources its rows are of
    allowed_uses: list[str] | None = None  # what all of them allow
    loop_id: str | None = None  # the loop that this is a step of
    loop_step: int | None = None  # from 0 on

    @property
    def pinned_versions(self) -> dict[str, int]:
        """Delta version of every input table."""
        found: dict[str, int] = json.loads(self.table_versions)
        return found


class TrainingRow(Record):
    """One leaf of a call tree, materialised. Key: (training_set_id, row_index)."""

    training_set_id: str
    row_index: int
    episode_id: str
    group_id: str
    problem_kind: str
    input_ids: list[int]
    loss_mask: list[int]  # 1 on tokens the policy sampled and that are trained
    logprobs: list[float]  # behaviour log-probs; 0 where loss_mask is 0 or none were recorded
    weight_versions: list[int]  # -1 on prompt tokens and demonstrations
    reward: float
    advantage: float
    advantages: list[float] | None = (
        None  # one per input id, where credit differs along the row; None: `advantage` for all
    )


class ModelVersion(Record):
    """A registered version. Key: (name, version), the same numbers as in the MLflow registry."""

    name: str
    version: int
    parent_version: int | None
    training_set_id: str | None
    mlflow_run_id: str
    weights_path: str
    weights_digest: str
    stage: str  # "base", "sft", "grpo"
    commit: str
    created_at: datetime
    licences: list[str] | None = None  # of all data that trained it or a version it comes from
    allowed_uses: list[str] | None = None  # what all of that data allows
    learnt_from: list[str] | None = (
        None  # "tiny@3": further versions that its training read, as a teacher or a reference
    )


class Deployment(Record):
    """One change of what the engine serves, with its proof. Key: deployment_id."""

    deployment_id: str
    name: str
    version: int
    engine_url: str
    proof: str  # JSON: log-prob distances on the probe set
    accepted: bool
    reason: str
    deployed_at: datetime


class GateDecision(Record):
    """One decision of the gate about a version. Key: gate_id."""

    gate_id: str  # derived from all that was decided on: deciding the same again adds nothing
    name: str
    candidate: int
    champion: int | None  # the version it was compared with; None: none was promoted
    policy_digest: str  # of `policy`
    policy: str  # TOML, as it was read
    measurements: str  # JSON: `values` by scope ("total", or a kind of problem) and metric, runs, rules; docs/gate.md
    passed: bool
    reasons: list[str]  # what refused it, in words; empty where it passed
    decided_at: datetime
    decided_by: str


class Source(Record):
    """What may be done with the data of one source of problems or episodes. The newest row of a source holds.

    A source is what `Problem.source` names; a row with source "*" is the default for sources without one of their own.
    """

    source: str
    licence: str
    allowed_uses: list[str]  # must contain "training" to be trained on
    consent: Literal["given", "withheld", "not_needed", "unknown"]  # of the people whose data it is
    privacy: Literal["mask", "quarantine", "allow"]  # what happens to secrets and personal data found in its episodes
    retention_days: int | None  # of content; None: as long as the table's own rule
    declared_by: str
    declared_at: datetime


class Quarantined(Record):
    """A row that was refused at the door, with the reason. Key: quarantine_id."""

    quarantine_id: str  # derived from table, key and payload: refusing the same row twice adds nothing
    table_name: str
    episode_id: str | None
    attempt_id: str | None
    row_key: str  # JSON: the key of the row
    rule: str  # the law it breaks, in words
    payload: str | None  # JSON: the row; None where its content may not be kept
    payload_digest: str
    quarantined_at: datetime


class Redaction(Record):
    """Something that was found and replaced before it was written; never the thing itself.

    Key: (episode_id, attempt_id, place, detector).
    """

    episode_id: str
    attempt_id: str
    place: str  # table, row and column, such as "calls/3/completion_token_ids"
    detector: str  # what it was taken for: "email", "aws_access_key"
    count: int
    created_at: datetime


class CallReward(Record):
    """A judgement of one call; append-only. The newest per (episode_id, call_id, rubric, rubric_version) holds."""

    episode_id: str
    call_id: str
    rubric: str
    rubric_version: int
    reward: float
    reason: str | None
    labelled_at: datetime


class Review(Record):
    """A person's verdict on an episode; it outranks every rubric. The newest per (episode_id, reviewer) holds."""

    review_id: str
    episode_id: str
    reviewer: str
    queue: str  # the rule that brought it before the reviewer: "disagreement", "detector", "high_advantage", "random", "asked"
    outcome: float | None  # 1 solved, 0 not; None: cannot be told, or must not be trained on
    comment: str | None
    reviewed_at: datetime


class Erasure(Record):
    """What was erased, and the proof. The newest row of an erasure_id holds; one with `scanned` NULL is not finished."""

    erasure_id: str
    subject: str | None  # a keyed digest of the subject, which itself must be gone
    episode_ids: list[str]  # tombstones, see `lakehouse.erased`: the ids themselves are gone
    reason: str
    requested_by: str
    rows: str  # JSON: rows removed by table
    files: int  # files removed or rewritten
    scanned: str | None  # JSON: bytes and files of the scan that ended it, and what it found: nothing
    tainted: list[str]  # "name@version" of every model version that was trained on them
    signature: str  # HMAC-SHA-256 over the other columns with the lake's own key
    erased_at: datetime
    training_sets: list[str] | None = None  # those that lost rows: their digest does not hold any more
    lost_versions: str | None = None  # JSON: by table, spans of Delta versions that cannot be read any more


class AuditEntry(Record):
    """Who did what to the lake. Append-only. Key: entry_id."""

    entry_id: str
    actor: str  # a person or a flow, with the flow run where there is one
    action: str  # "erase", "declare source", "review", "export", "release", "retain"
    object: str
    detail: str  # JSON
    noted_at: datetime
