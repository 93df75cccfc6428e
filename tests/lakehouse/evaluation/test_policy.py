"""A policy's file: the shipped ones are sound, and what is wrong in one is named with what there is."""

import pytest

from lakehouse.evaluation.metrics import METRICS
from lakehouse.evaluation.policy import SHIPPED, PolicyError, parse, read
from lakehouse.radar import LIMIT

RULE = '[[rules]]\nmetric = "success"\noperator = ">="\nbound = 0.5\n'
WHEN = 'when_refused = "ask"\n'


@pytest.mark.parametrize("name", [file.stem for file in SHIPPED.glob("*.toml")])
def test_a_shipped_policy_is_sound_and_says_of_each_rule_what_breaking_it_means(name):
    policy = read(name)
    assert all(rule.why for rule in policy.rules)
    assert policy.text == (SHIPPED / f"{name}.toml").read_text()
    assert len(policy.digest) == 16


def test_the_default_refuses_what_is_significantly_worse_hacks_or_is_not_accounted_for():
    rules = {rule.metric: rule for rule in read("default").rules}
    assert (rules["success_difference_high"].text, rules["success_difference_high"].per_kind) == (
        "success_difference_high >= 0",
        True,
    )
    assert rules["hack_rate"].bound == rules["training_hack_rate"].bound == LIMIT
    assert {"ledger_gap", "agreement", "proven", "tainted"} <= rules.keys()


def test_a_file_of_ones_own_is_read(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(WHEN + "min_pairs = 5\n[exam]\nproblems = {search = 3}\n" + RULE)
    policy = read(str(file))
    assert (policy.when_refused, policy.min_pairs, policy.exam.problems) == ("ask", 5, {"search": 3})
    assert policy.digest != read("default").digest


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (WHEN + RULE.replace("success", "sucess"), r"rule 1: no metric 'sucess' \(did you mean success\?\); there are success"),
        (WHEN + RULE + RULE.replace(">=", "=>"), "rule 2: no operator '=>'; there are >= > <= < =="),
        (WHEN + RULE + "per_knd = true\n", r"rule 1: no key 'per_knd' \(did you mean per_kind\?\); there are metric"),
        (WHEN + "min_pair = 3\n" + RULE, r"no key 'min_pair' \(did you mean min_pairs\?\); there are when_refused"),
        (WHEN + "[exam]\nsample = 2\n" + RULE, r"exam: no key 'sample' \(did you mean samples\?\); there are problems"),
        (WHEN + 'text = "x"\n' + RULE, "no key 'text'; there are"),
        ('when_refused = "shrug"\n' + RULE, "when_refused: Input should be 'roll_back', 'go_on' or 'ask'"),
        (RULE, "when_refused: Field required"),
        (WHEN, "rules: Field required"),
        (WHEN + "rules = []\n", "rules: List should have at least 1 item"),
        (WHEN + RULE.replace("0.5", "nan"), "rule 1: bound: Input should be a finite number"),
        (WHEN + RULE.replace("0.5", '"half"'), "rule 1: bound: Input should be a valid number"),
        (WHEN + "confidence = 95\n" + RULE, "confidence: Input should be less than 1"),
        (WHEN + "min_pairs = 0\n" + RULE, "min_pairs: Input should be greater than or equal to 2"),
        (WHEN + RULE.replace('"success"', '"tainted"') + "per_kind = true\n", "tainted is of the version and not of a kind"),
        (WHEN + RULE.replace('"success"', '"offpolicy_success"'), "offpolicy_success needs a table"),
        (WHEN + "[exam]\ntemperature = 0\n[offpolicy]\n" + RULE, "say nothing at temperature 0"),
        ("when_refused = ", "is not TOML"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_what_there_is(text, said):
    with pytest.raises(PolicyError, match=said):
        parse(text, "p")


def test_a_policy_that_is_not_there_says_which_are_shipped(tmp_path):
    with pytest.raises(PolicyError, match=r"no gate policy 'lax'.*shipped: default, strict"):
        read("lax")
    with pytest.raises(PolicyError, match="no gate policy"):
        read(str(tmp_path / "gone.toml"))
    with pytest.raises(PolicyError, match="cannot be read"):
        read(str(tmp_path) + "/")


def test_every_metric_says_what_it_is():
    assert all(metric.about for metric in METRICS.values())
