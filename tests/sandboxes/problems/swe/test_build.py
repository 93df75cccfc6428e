"""The builder on a package of our own, in real boxes."""

from collections import Counter

import pytest

from lakehouse.records import Problem
from sandboxes.backends.base import SandboxError
from sandboxes.backends.scripted import ScriptedBackend
from sandboxes.problems.swe import drafts, shipped, validate
from sandboxes.problems.swe.build import TOLD_ALIKE, Builder, Order, Report, Verdict
from sandboxes.problems.swe.kind import KIND
from sandboxes.problems.swe.spec import Bug, read_spec


async def build(out, backend, package, existing=(), **order):
    builder = Builder(out, backend, existing)
    made = [problem async for problem in builder.package(package, Order(versions=False, **order))]
    return builder, made


def dead(argv, files):
    raise SandboxError("no box was needed")


@pytest.mark.bubblewrap
async def test_a_build_keeps_what_holds_up_goes_on_where_it_was_and_adds_to_what_is_there(
    pebble, boxes, tmp_path, monkeypatch
):
    monkeypatch.setattr(validate, "LEAST_KEPT", 0.3)  # five tests are all the package has
    out = tmp_path / "out"
    builder, made = await build(out, boxes, pebble, seed=29, singles=2, combined=1)
    singles = [problem for problem in made if len(read_spec(problem).bugs) == 1]
    (combined,) = [problem for problem in made if read_spec(problem).also]
    assert len(singles) == 2
    assert all(problem.oracle_passed and problem.null_failed for problem in builder.problems)
    report = builder.report
    assert (report.kept, report.told) == (3, len(builder.problems))
    assert report.tried == report.kept + sum(report.rejected.values())
    assert report.by_package["pebble"].tried == report.tried == sum(rate.tried for rate in report.by_kind.values())
    assert report.by_kind["combined"].kept == 1

    # Each of the bugs is a problem of its own, so a repair of one of them is not enough.
    spec = read_spec(combined)
    assert set(spec.bugs) <= {bug for problem in singles for bug in read_spec(problem).bugs}
    assert len(KIND.expert(combined)) == len(spec.bugs) + 1
    assert combined.prompt.count("\nFails: ") == len(spec.bugs)

    # The same order again tries nothing anew; more of it tries only what is missing.
    validated = dict(builder._gold)
    again = Builder(out, boxes)
    again._gold = validated
    repeated = [
        problem async for problem in again.package(pebble, Order(seed=29, singles=2, combined=1, versions=False))
    ]
    assert repeated == made and again.report == report
    wider = Builder(tmp_path / "other", ScriptedBackend(dead), builder.problems)
    wider._gold = validated
    assert wider.missing(pebble, Order(seed=29, singles=2, combined=1)) == 0
    assert [
        problem async for problem in wider.package(pebble, Order(seed=29, singles=2, combined=1, versions=False))
    ] == []
    assert wider.problems == builder.problems

    shipped.write(out, builder.problems)
    assert sorted(shipped.read(out), key=lambda p: p.problem_id) == sorted(builder.problems, key=lambda p: p.problem_id)


@pytest.mark.bubblewrap
async def test_a_candidate_whose_statement_is_that_of_another_problem_is_refused_and_counted(
    pebble, boxes, tmp_path, monkeypatch
):
    monkeypatch.setattr(validate, "LEAST_KEPT", 0.3)
    first, made = await build(tmp_path / "first", boxes, pebble, seed=29, singles=1, combined=0)
    (problem,) = made
    # Another problem, of another release, is told as the candidate would be.
    other = problem.model_copy(update={"problem_id": "swe/pebble/other", "source": "pebble==0.9"})
    for journal in ("first", "second"):  # a verdict of the journal, and one that is found now
        again = Builder(tmp_path / journal, boxes, [other])
        again._gold = dict(first._gold)
        kept = [one async for one in again.singles(pebble, 1, 29)]
        assert problem.problem_id not in {one.problem_id for one in again.problems} and again.report.tried > 1
        assert again.report.rejected[TOLD_ALIKE] == 1
        assert len({one.prompt for one in again.problems}) == len(again.problems) >= 2 and len(kept) == 1


def bug(kind, line, path="a.py", function="f"):
    return Bug(
        path=path, line=line, column=0, old="a", new="b", kind=kind, function=function, first_line=1, last_line=99
    )


def test_candidates_begin_with_the_kinds_that_were_seen_least_and_alternate(pebble):
    ran = {"pebble/core.py": range(1, 13)}
    kinds = [found.kind for found in drafts.candidates(pebble, 0, ran, Counter())]
    assert len(set(kinds[: len(set(kinds))])) == len(set(kinds))  # one of each before the second of any
    seen = Counter(dict.fromkeys(set(kinds) - {"return"}, 5))
    assert next(drafts.candidates(pebble, 0, ran, seen)).kind == "return"
    assert list(drafts.candidates(pebble, 0, ran, seen)) == list(drafts.candidates(pebble, 0, ran, seen))
    assert list(drafts.candidates(pebble, 0, {}, Counter())) == []  # no test runs these lines


def test_bugs_are_kept_apart():
    spread = drafts.Spread([bug("not", 3), bug("not", 4)])
    assert not spread.room(bug("compare", 3))
    assert spread.room(bug("compare", 5))
    spread.add(bug("compare", 5))
    assert not spread.room(bug("compare", 6)) and spread.room(bug("compare", 6, function="g"))


def test_less_told_more_wrong_and_less_to_see_is_harder(problem):
    spec = read_spec(problem)
    hints = [drafts.difficulty(spec.model_copy(update={"hint": hint})) for hint in (4, 3, 2, 1, 0)]
    assert hints == sorted(hints) and len(set(hints)) == 5
    harder = spec.model_copy(update={"also": (bug("not", 3), bug("not", 4))})
    hidden = spec.model_copy(update={"bug": spec.bug.model_copy(update={"kind": "guard"})})
    assert drafts.difficulty(spec) < min(drafts.difficulty(harder), drafts.difficulty(hidden))


def test_a_problem_with_one_bug_has_the_same_spec_as_before_there_were_several(problem: Problem):
    assert not {"also", "commands", "metadata"} & set(read_spec(problem).model_dump(exclude_defaults=True))
    assert read_spec(problem).dump() == read_spec(problem.model_copy(update={"spec": read_spec(problem).dump()})).dump()


def test_the_report_is_the_same_in_whatever_order_packages_were_built():
    def verdict(package, kind, elapsed, reason="no test notices"):
        return Verdict(
            key=f"{package} {kind}", package=package, kind=kind, seconds=4, elapsed=elapsed, problem=None, reason=reason
        )

    of_a = [(verdict("a", "compare", 4), 0), (verdict("a", "slice", 1, "the tests do not end"), 0)]
    of_b = [(verdict("b", "slice", 2), 0)]
    found = Report.of([of_b[0], *of_a])
    assert found.model_dump_json() == Report.of([of_a[0], of_b[0], of_a[1]]).model_dump_json()
    assert (found.tried, found.seconds, found.worked) == (3, 7.0, 12.0)
    assert list(found.by_package) == ["a", "b"] and found.by_kind["slice"].tried == 2
