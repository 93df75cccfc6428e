"""Two versions that sat one exam: version 1 under run `old`, version 2 under run `new`."""

import pytest

from lakehouse.evaluation.policy import parse
from lakehouse.records import Reward
from lakehouse.write import Writer

RULE = '[[rules]]\nmetric = "{metric}"\noperator = "{operator}"\nbound = {bound}\n'
RUNS = {1: "old", 2: "new"}


class Exams:
    """Plays exams: `outcomes` are of one problem, one entry per sample; None was lost to infrastructure.

    `where` is the lake, with everything that was played so far.
    """

    def __init__(self, lake, make):
        self.lake, self.make = lake, make
        self.played, self.dispatches, self.rewards = None, [], []

    def sit(self, version, problem_id, outcomes, *, kind="search", planned=0, **changes):
        run = RUNS[version]
        for sample, outcome in enumerate(outcomes):
            how = {"run": run, "model_version": version, "purpose": "eval:t", "split": "eval", "problem_kind": kind}
            how["calls"] = [self.make.call([1, 2, 3], [4, 5], version=version)]
            if outcome is None:
                how |= {"status": "infra_error", "error": "the engine was gone", "calls": []}
            one = self.make.batch(problem_id, sample, match=None, **(how | changes))
            self.played = one if self.played is None else self.played + one
            if outcome is not None and outcome != "unscored":
                self.rewards.append(self.reward(one.episodes[0].episode_id, outcome, kind))
        self.dispatches += [
            self.make.dispatch(problem_id, sample, run=run).model_copy(update={"purpose": "eval:t"})
            for sample in range(max(planned, len(outcomes)))
        ]

    def reward(self, episode_id, outcome, kind="search"):
        return Reward(
            episode_id=episode_id, rubric=kind, rubric_version=1, outcome=float(outcome > 0), reward=float(outcome),
            status="scored", components="{}", labelled_at=self.make.problem().created_at,
        )  # fmt: skip

    @property
    def where(self):
        if self.played is not None:
            writer = Writer(self.lake)
            writer.append("dispatches", self.dispatches)
            self.played.land(self.lake)
            writer.append("rewards", self.rewards)
            self.__init__(self.lake, self.make)
        return self.lake


@pytest.fixture
def exams(lake, make):
    return Exams(lake, make)


@pytest.fixture
def policy():
    """A policy of rules given as (metric, operator, bound), with other keys as keywords; `per_kind` is of every rule."""

    def build(*rules, per_kind=False, more="", **keys):
        told = {"when_refused": '"roll_back"', "min_pairs": 2, "min_problems": 2, **keys}
        head = "".join(f"{key} = {value}\n" for key, value in told.items()) + more
        tail = "per_kind = true\n" if per_kind else ""
        texts = [RULE.format(metric=m, operator=o, bound=b) + tail for m, o, b in rules]
        return parse(head + "".join(texts))

    return build
