"""The page of a decision, and of an estimate: what a person reads in a minute."""

from lakehouse.evaluation.decide import decide
from lakehouse.evaluation.measure import Measurements
from lakehouse.evaluation.offpolicy import Estimated, Means
from lakehouse.evaluation.policy import parse
from tasks import offpolicy
from tasks.gate import page

POLICY = parse("""
when_refused = "ask"
min_pairs = 2
min_problems = 2
[offpolicy]
[[rules]]
metric = "offpolicy_difference_high"
operator = ">="
bound = 0
if_missing = "pass"
why = "its log-probs say so"
[[rules]]
metric = "success_difference_high"
operator = ">="
bound = 0
per_kind = true
why = "is worse"
[[rules]]
metric = "agreement"
operator = "<="
bound = 0.05
""")


def difference(mean, low, high, **more):
    return {"success_difference": mean, "success_difference_low": low, "success_difference_high": high, **more}


def decided(measured, champion=1, **how):
    return decide(POLICY, measured, name="tiny", candidate=2, champion=champion, **how)


def test_a_refusal_says_why_with_every_difference_and_every_rule():
    measured = Measurements(
        values={
            "total": difference(-0.05, -0.1, 0.01, pairs=40, problems=40, success=0.4, agreement=0.001),
            "search": difference(0.1, 0.02, 0.2, pairs=30, problems=30, success=0.5),
            "swe": difference(-0.5, -0.7, -0.2, pairs=10, problems=10, success=0.1),
        },
        champion={"total": {"success": 0.45}, "search": {"success": 0.4}, "swe": {"success": 0.6}},
        fates={"candidate": {"failed": 2, "scored": 40}, "champion": {"scored": 42}},
        runs={"candidate": "eval-a", "champion": "eval-b"},
    )
    decision = decided(measured)
    told = page(decision)
    assert told.startswith(
        "# tiny version 2 is refused\n\nCompared with version 1.\n* success_difference_high >= 0 of swe: it is -0.2; is worse"
    )
    assert "When refused: nothing changes: a person decides" in told
    assert "| swe | 10 | 0.6 | 0.1 | -0.500 (worse) | -0.700 to -0.200 |" in told
    assert "| search | 30 | 0.4 | 0.5 | +0.100 (better) |" in told
    assert "| total | 40 | 0.45 | 0.4 | -0.050 (alike) |" in told
    assert "| `success_difference_high >= 0` | swe | -0.2 | 🔴 **broken**: is worse |" in told
    assert "| `agreement <= 0.05` | total | 0.001 | 🟢 holds |" in told
    assert "| `offpolicy_difference_high >= 0` | total |  | not measured |" in told
    assert "Episodes of the candidate (run `eval-a`): 2 failed, 40 scored." in told
    assert decision.gate_id in told


def test_a_candidate_refused_before_it_played_has_no_comparison():
    measured = Measurements(values={"total": {"offpolicy_difference_high": -0.1}}, runs={"champion": "eval-b"})
    decision = decided(measured, rules=POLICY.before_playing)
    assert decision.reasons == ["offpolicy_difference_high >= 0: it is -0.1; its log-probs say so"]
    assert "champion solves" not in page(decision)
    promising = Measurements(values={"total": {"offpolicy_difference_high": 0.1}})
    assert decided(promising, rules=POLICY.before_playing).passed


def test_without_a_champion_the_page_says_so():
    told = page(decided(Measurements(values={"total": {"agreement": 0.01}}), champion=None))
    assert told.startswith("# tiny version 2 passes\n\nCompared with nothing: none is promoted.")
    assert "no champion to compare with" in told


def test_an_estimate_has_its_worth_and_what_was_left_out():
    means = Means(value=0.5, low=0.3, high=0.7, difference=0.1, difference_low=-0.1, difference_high=0.3)
    found = Estimated(
        name="tiny", version=3, run_ids=["r"], of="success", sampled_by={"2": 40, "1": 8}, episodes=48, problems=48,
        left_out={"failed": 2}, tokens=900, temperature=1.0, observed=0.4, effective_samples=31.4, mean_weight=0.98,
        largest_share=0.05, divergence=0.002, confidence=0.95, estimates={"wis": means},
    )  # fmt: skip
    told = offpolicy.page(found)
    assert "from 48 episodes of version 2 (40), version 1 (8)" in told
    assert "worth **31.4** episodes of its own. Observed success: 0.400." in told
    assert "| wis | 0.500 | 0.300 to 0.700 | +0.100 | -0.100 to +0.300 |" in told
    assert told.endswith("Left out: 2 failed.")
