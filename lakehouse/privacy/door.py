"""The door of the lake: what an episode holds is looked through before the first durable write, and fails closed.

Per source (`policies`) what is found is replaced (`mask`), or the episode is refused without its content (`quarantine`), or
nobody looks (`allow`). Token ids can be looked through only with the model's tokenizer (`pieces`): an episode to be masked
whose tokenizer is not known is refused.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from lakehouse.privacy import policies
from lakehouse.privacy.detect import Finder
from lakehouse.privacy.masking import Counts, Rows, Search
from lakehouse.privacy.pieces import pieces_of
from lakehouse.privacy.policies import Policy
from lakehouse.privacy.texts import Replacer, strings
from lakehouse.records import Action, Call, Episode, Evidence, Problem, Quarantined, Redaction, digest, dumps, now

Child = TypeVar("Child", Call, Action, Evidence)
NO_TOKENIZER = "its token ids cannot be looked through"  # how the rule of such a refusal begins
FOUND = "its source is quarantined where secrets or personal data are found: "


@dataclass(frozen=True)
class Admitted:
    """What may be written of a batch."""

    episodes: Sequence[Episode]
    calls: Sequence[Call]
    actions: Sequence[Action]
    evidence: Sequence[Evidence]
    redactions: Sequence[Redaction] = ()  # what was replaced, without the thing itself
    quarantine: Sequence[Quarantined] = ()  # one row per refused episode, without its content
    refused: Sequence[str] = ()  # episode ids that are in none of the above but `quarantine`


def admit(
    episodes: Sequence[Episode],
    calls: Sequence[Call],
    actions: Sequence[Action],
    evidence: Sequence[Evidence],
    *,
    lake: str,
) -> Admitted:
    """The batch as it may be written to `lake`. DetectorsMissing where they cannot run: then nothing may be written."""
    asked = policies.of_episodes(lake, episodes)
    if all(policy == "allow" for policy in asked.values()):
        return Admitted(episodes, calls, actions, evidence)
    called, acted, measured = _by_attempt(calls), _by_attempt(actions), _by_attempt(evidence)
    found, batch = Finder(), _Batch()
    for episode in episodes:
        key = (episode.episode_id, episode.attempt_id)
        rows = Rows(episode, called.pop(key, []), acted.pop(key, []), measured.pop(key, []))
        batch.add(rows, asked[episode.episode_id], found)
    if called or acted or measured:
        raise ValueError(
            f"{len(called) + len(acted) + len(measured)} attempts have rows and no episode in the batch, so nobody can say "
            "what may be kept of them; nothing was written"
        )
    return batch.admitted()


def admit_problems(problems: Sequence[Problem], *, lake: str) -> tuple[list[Problem], list[Quarantined]]:
    """Problems as they may be written, and those that may not be.

    Only what outside applications bring is looked through. Of the other kinds a problem's texts and specification are what
    it is graded by, and whoever loads them has chosen them.
    """
    told = policies.declared(lake) if any(problem.kind == policies.OUTSIDE for problem in problems) else {}
    found, kept, refused = Finder(), [], []
    for problem in problems:
        policy = "allow" if problem.kind != policies.OUTSIDE else policies.of_source(problem.source, problem.kind, told)
        values = {} if policy == "allow" else found([problem.title, problem.prompt, *strings(problem.spec)])
        if not values:
            kept.append(problem)
        elif policy == "mask":
            replacer, counted = Replacer(values), Counter[str]()
            texts = {name: replacer.document(getattr(problem, name), counted) for name in ("title", "prompt", "spec")}
            kept.append(problem.model_copy(update=texts))
        else:
            key = dumps({"problem_id": problem.problem_id, "edition": problem.content})
            refused.append(_refusal("problems", None, key, problem.content, FOUND + _kinds(values)))
    return kept, refused


class _Batch:
    def __init__(self) -> None:
        self.episodes: list[Episode] = []
        self.calls: list[Call] = []
        self.actions: list[Action] = []
        self.evidence: list[Evidence] = []
        self.redactions: list[Redaction] = []
        self.quarantine: list[Quarantined] = []

    def add(self, rows: Rows, policy: Policy, found: Finder) -> None:
        if policy == "allow":
            self._keep(rows)
            return
        pieces = pieces_of(rows.episode.model_name)
        if pieces is None and rows.has_ids:
            self._refuse(
                rows,
                f"{NO_TOKENIZER}: no tokenizer.json of model {rows.episode.model_name!r} is known; "
                "land it where LAKELOOP_MODEL is the model's folder",
            )
            return
        search = Search(rows, pieces, found)
        if policy == "mask":
            kept, counts = search.replaced()
            self._keep(kept)
            self._note(rows.episode, counts)
        elif search.values:
            self._refuse(rows, FOUND + _kinds(search.values))
        else:
            self._keep(rows)

    def admitted(self) -> Admitted:
        refused = [row.episode_id for row in self.quarantine if row.episode_id]
        return Admitted(
            self.episodes, self.calls, self.actions, self.evidence, self.redactions, self.quarantine, refused
        )

    def _keep(self, rows: Rows) -> None:
        self.episodes.append(rows.episode)
        self.calls += rows.calls
        self.actions += rows.actions
        self.evidence += rows.evidence

    def _note(self, episode: Episode, counts: Counts) -> None:
        self.redactions += [
            Redaction(
                episode_id=episode.episode_id,
                attempt_id=episode.attempt_id,
                place=place,
                detector=detector,
                count=count,
                created_at=now(),
            )
            for place, detectors in counts.items()
            for detector, count in detectors.items()
        ]

    def _refuse(self, rows: Rows, rule: str) -> None:
        episode = rows.episode
        # Without when it was measured: what is read again from the gateway is the same episode.
        facts = (fact.model_dump_json(exclude={"created_at"}) for fact in rows.evidence)
        content = digest(*(row.model_dump_json() for row in (episode, *rows.calls, *rows.actions)), *facts)
        key = dumps({"episode_id": episode.episode_id, "attempt_id": episode.attempt_id})
        self.quarantine.append(_refusal("episodes", episode, key, content, rule))


def _refusal(table: str, episode: Episode | None, key: str, content: str, rule: str) -> Quarantined:
    """Without the content, of which `content` is the digest; with whose data it is, so that it can be erased."""
    return Quarantined(
        quarantine_id="qu-" + digest(table, key, content)[:24],
        table_name=table,
        episode_id=episode.episode_id if episode else None,
        attempt_id=episode.attempt_id if episode else None,
        row_key=key,
        rule=rule,
        payload=dumps({"subject": episode.subject}) if episode and episode.subject else None,
        payload_digest=content,
        quarantined_at=now(),
    )


def _kinds(values: Mapping[str, str]) -> str:
    """What was found, without saying what it was."""
    return ", ".join(f"{name} ({count})" for name, count in sorted(Counter(values.values()).items()))


def _by_attempt(rows: Sequence[Child]) -> dict[tuple[str, str], list[Child]]:
    found: dict[tuple[str, str], list[Child]] = defaultdict(list)
    for row in rows:
        found[row.episode_id, row.attempt_id].append(row)
    return found
