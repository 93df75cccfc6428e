"""Filters put together by name: each names what it leaves out and why, ours and a user's own."""

from datetime import UTC, datetime, timedelta

import pytest

from lakehouse.label import label
from lakehouse.query import connect, query
from lakehouse.records import Source
from lakehouse.selection import filters
from lakehouse.selection.filters import InvalidFilter, known
from lakehouse.selection.select import Selection, decided, select
from lakehouse.write import Writer

AT = datetime(2026, 1, 1, tzinfo=UTC)
GRPO = Selection(objective="grpo", rubrics=["search@2"], filter="grpo", policy_version=1)


@pytest.fixture
def landed(lake, make):
    """Land a batch of problems `p` and `q` and label it; the lake."""

    def land(batch, **problem):
        Writer(lake).append("problems", [make.problem(**problem), make.problem("q", **problem)])
        batch.land(lake)
        label(lake, "search@2")
        return lake

    return land


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Write a filter of the user's."""
    monkeypatch.setenv("LAKELOOP_HOME", str(tmp_path / "home"))
    folder = tmp_path / "home" / "filters"
    folder.mkdir(parents=True)

    def write(name, sql):
        (folder / f"{name}.sql").write_text(sql)
        return folder / f"{name}.sql"

    return write


def left_out(lake, filter, **changes):
    """Episodes by the reason they are left out for."""
    asked = GRPO.model_copy(update={"filter": filter, **changes})
    steps = filters.chosen(asked.filter)
    with connect(lake) as connection:
        episodes = decided(connection, asked, steps, filters.settled(steps, asked.settings))
    assert episodes.height
    return dict(episodes.drop_nulls("reason")["reason"].value_counts().iter_rows())


def test_the_same_tokens_twice_are_one_sample(landed, make):
    other = [make.call([1, 2, 3], [9, 9])]
    lake = landed(make.group([True, False, True]) + make.batch(sample=3, calls=other))
    assert left_out(lake, "grpo+dedup") == {"duplicate": 2}  # of three alike


def test_another_problem_may_have_the_same_tokens(landed, make):
    lake = landed(make.group([True, False], calls=None) + make.group([True, False], "q"))
    assert left_out(lake, "grpo+dedup") == {"duplicate": 2}


def test_the_same_answer_twice_is_one_sample(landed, make):
    batch = make.group([True, False, True])
    assert left_out(landed(batch), "grpo+distinct_answers") == {"same_answer": 2}


def test_length_limits_have_defaults_and_settings(landed, make):
    long = make.batch(sample=2, calls=[make.call([1], range(4, 14))])
    lake = landed(make.group([True, False]) + long)
    assert left_out(lake, "grpo+short") == {}
    assert left_out(lake, "grpo+short", settings={"max_sampled_tokens": 9}) == {"many_tokens": 1}
    assert left_out(lake, "grpo+short", settings={"max_calls": 0}) == {"many_calls": 3}


def test_a_band_of_success_makes_a_curriculum(landed, make):
    easy = make.group([True] * 5 + [False], "q")
    lake = landed(make.group([True, False, False, False]) + easy)
    assert left_out(lake, "grpo+curriculum", settings={"max_success": 0.8}) == {"too_easy": 6}
    assert left_out(lake, "grpo+curriculum", settings={"min_success": 0.5}) == {"too_hard": 4}
    assert left_out(lake, "grpo+curriculum", settings={"min_success": 0.5, "min_attempts": 5}) == {}


def test_a_quota_takes_whole_groups_of_each_source(landed, make):
    lake = landed(make.group([True, False]) + make.group([True, False], "q"))
    assert left_out(lake, "grpo+quota", settings={"per_source": 3}) == {"over_quota": 2}
    assert left_out(lake, "grpo+quota", settings={"per_source": 1}) == {"over_quota": 4}


def test_solved_samples_of_a_policy_can_be_imitated(landed, make):
    lake = landed(make.group([True, False]) + make.batch(sample=2, mode="demonstration"))
    assert left_out(lake, "policy+solved", objective="sft") == {"not_policy": 1, "not_solved": 1}


def test_filters_run_in_their_order_and_the_first_reason_holds(landed, make):
    lake = landed(make.group([True, False, True]))
    assert left_out(lake, "dedup+solved") == {"duplicate": 2}
    assert left_out(lake, "solved+dedup") == {"not_solved": 1, "duplicate": 1}


def test_a_users_own_filter_is_one_more_step(landed, make, own):
    own("even", "-- keeps: even samples\nselect episode_id, 'odd' as reason from before where sample_index % 2 = 1")
    lake = landed(make.group([True, False, True, False]))
    assert left_out(lake, "grpo+even") == {"odd": 2}
    assert known()["even"].keeps == "even samples"


def test_filters_go_by_the_outcome_and_cannot_see_the_reward(landed, make, own):
    own("shaped", "-- keeps: what was well shaped\nselect episode_id, 'low' as reason from before where reward < 0.5")
    with pytest.raises(InvalidFilter, match="goes by the outcome, so `before` has no reward"):
        left_out(landed(make.group([True, False])), "grpo+shaped")


def test_a_filter_that_writes_or_reads_files_is_refused(landed, make, own):
    own("writes", "-- keeps: nothing\ndelete from episodes")
    own("reads", "-- keeps: nothing\nselect episode_id, 'x' as reason from read_csv('/etc/passwd')")
    lake = landed(make.group([True, False]))
    for name in ("writes", "reads"):
        with pytest.raises(InvalidFilter, match=name):
            left_out(lake, f"grpo+{name}")


def test_files_that_are_no_filters_are_refused_with_what_to_do(lake, own):
    own("grpo", "-- keeps: all")
    with pytest.raises(InvalidFilter, match="rename it"):
        left_out(lake, "grpo")
    own("grpo", "").unlink()
    own("silent", "select 1")
    with pytest.raises(InvalidFilter, match="begin it with a line `-- keeps: `"):
        left_out(lake, "grpo")


def test_unknown_settings_and_settings_of_another_kind_are_refused(lake):
    with pytest.raises(InvalidFilter, match=r"no setting 'max_call'.*max_sampled_tokens \(1024\), max_calls \(32\)"):
        left_out(lake, "grpo+short", settings={"max_call": 3})
    with pytest.raises(InvalidFilter, match="must be like its default 32"):
        left_out(lake, "grpo+short", settings={"max_calls": "3"})


def source(name, *, uses=("training",), consent="not_needed", licence="CC-BY-4.0"):
    return Source(
        source=name,
        licence=licence,
        allowed_uses=list(uses),
        consent=consent,
        privacy="allow",
        retention_days=None,
        declared_by="somebody",
        declared_at=AT,
    )


def test_a_source_must_be_declared_free_for_training(landed, make, lake):
    """Declarations one after another, and what is left out for them; the newest of a source holds."""
    landed(make.group([True, False]))
    declared = [
        (source("another", consent="withheld"), {}),
        (source("made up"), {}),
        (source("made up", uses=["evaluation"]), {"licence": 2}),
        (source("made up", consent="withheld"), {"consent": 2}),
        (source("made up", consent="unknown"), {"consent": 2}),
        (source("made up", consent="given"), {}),
        (source("*", consent="unknown"), {}),
    ]
    for day, (one, reasons) in enumerate(declared):
        Writer(lake).append("sources", [one.model_copy(update={"declared_at": AT + timedelta(days=day)})])
        assert left_out(lake, "grpo") == reasons, one


def test_without_a_declaration_of_its_own_a_source_has_the_default(landed, make, lake):
    landed(make.group([True, False]))
    Writer(lake).append("sources", [source("*", consent="unknown")])
    assert left_out(lake, "grpo") == {"consent": 2}


def test_a_declaration_takes_away_and_never_adds(landed, make, lake):
    Writer(lake).append("sources", [source("made up")])
    landed(make.group([True, False]), allowed_uses=["evaluation"])
    assert left_out(lake, "grpo") == {"licence": 2}


def test_a_use_that_a_newer_edition_does_not_allow_is_withdrawn_from_the_older(landed, make, lake):
    landed(make.group([True, False]))
    newer = make.problem(edition="2", allowed_uses=["evaluation"], created_at=AT + timedelta(days=1))
    Writer(lake).append("problems", [newer])
    assert left_out(lake, "grpo") == {"licence": 2}


def test_a_set_has_the_licences_of_all_its_data_and_the_uses_that_all_of_it_allows(lake, make):
    Writer(lake).append("sources", [source("made up", uses=["training", "export"])])
    first = make.problem(allowed_uses=["training", "evaluation", "export"])
    second = make.problem("q", licence="MIT", allowed_uses=["training", "export"])
    Writer(lake).append("problems", [first, second])
    (make.group([True, False]) + make.group([True, False], "q")).land(lake)
    label(lake, "search@2")
    select(lake, GRPO)
    found = query("select licences, allowed_uses from training_sets", lake).row(0)
    assert found == (["CC-BY-4.0", "CC0-1.0", "MIT"], ["export", "training"])
