"""Every objective against its paper's formula, written out sequence by sequence in float64; gradients by finite differences."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from tasks.training.config import TrainConfig
from tasks.training.data.mapped import Row
from tasks.training.losses import LOSSES, compute
from tasks.training.losses.base import LossInputs
from tasks.training.losses.correction import correct, second_moment_cutoff
from tasks.training.objectives import OBJECTIVES, IcePop, KPop, M2po, Mask, Objective, Ppo, Truncate
from tasks.training.step import aggregation, gae

LENGTHS = [3, 7, 1, 12, 5, 4]
Arrays = dict[str, np.ndarray]
RNG = np.random.default_rng(5)


def made(spread: float = 0.3) -> Arrays:
    """Six sequences in three pairs, the first of each the better one."""
    rng = np.random.default_rng(11)
    n = sum(LENGTHS)
    behaviour = rng.normal(-2, 1, n)
    proximal = behaviour + rng.normal(0, spread, n)
    given = {"logprobs": proximal + rng.normal(0, spread, n), "proximal": proximal, "behaviour": behaviour}
    given["advantages"] = np.repeat([1.0, -1.0, 0.6, -1.3, 0.8, -0.4], LENGTHS)
    for name in ("reference", "teacher", "old_values", "values", "returns"):
        given[name] = rng.normal(-2, 1, n)
    return given


def inputs(given: Arrays, options: Objective, dtype: torch.dtype = torch.float64) -> tuple[LossInputs, float]:
    """As `step.objective` puts them together, and the step's normaliser."""
    rows = [row(i, n) for i, n in enumerate(LENGTHS)]
    weighing = aggregation.weighing(rows, config(options))
    numbers = torch.arange(len(LENGTHS)).repeat_interleave(torch.tensor(LENGTHS))
    tensors = {name: torch.from_numpy(value).to(dtype) for name, value in given.items()}
    for name in ("logprobs", "values"):
        tensors[name].requires_grad_()
    built = LossInputs(
        **tensors,
        sequences=numbers,
        weights=torch.tensor(weighing.of_token, dtype=dtype)[numbers],
        means=torch.tensor(weighing.of_penalty, dtype=dtype)[numbers],
        importance=torch.ones(sum(LENGTHS), dtype=dtype),
        pairs=numbers // 2,
    )
    return built, weighing.normaliser(range(len(rows)))


def row(number: int, trained: int, episode: str | None = None) -> Row:
    zeros = np.zeros(trained, np.float32)
    ids = np.zeros(trained + 1, np.int64)
    name = episode or f"ep-{number}"
    return Row(f"{name}#{number}", ids, np.arange(trained), zeros, zeros, 1, episode=name, group=f"gr-{number // 2}")


def config(options: Objective, **more: object) -> TrainConfig:
    settings = {"model": "m", "rows": "r.parquet", "output": "o", "learning_rate": 1, "objective": options.model_dump()}
    settings |= {"teacher": "t"} if options.name == "distill" else {}  # type: ignore[attr-defined]
    return TrainConfig.model_validate(settings | more)


def sequences(given: Arrays) -> list[Arrays]:
    ends = np.cumsum(LENGTHS)[:-1]
    parts = {name: np.split(value, ends) for name, value in given.items()}
    return [{name: part[i] for name, part in parts.items()} for i in range(len(LENGTHS))]


def clip(ratio: float, advantage: float, low: float, high: float) -> float:
    return min(ratio * advantage, min(max(ratio, 1 - low), 1 + high) * advantage)


def ratios(one: Arrays) -> np.ndarray:
    return np.exp(one["logprobs"] - one["proximal"])


def tokens(one: Arrays, low: float, high: float) -> list[float]:
    return [clip(r, a, low, high) for r, a in zip(ratios(one), one["advantages"], strict=True)]


def over_tokens(given: Arrays, gains: Callable[[Arrays], list[float]]) -> float:
    return -sum(sum(gains(one)) for one in sequences(given)) / sum(LENGTHS)


def over_episodes(given: Arrays, gain: Callable[[Arrays], float]) -> float:
    return -float(np.mean([gain(one) for one in sequences(given)]))


def gspo(one: Arrays) -> float:
    s = np.exp(np.mean(one["logprobs"] - one["proximal"]))
    return clip(s, one["advantages"][0], 3e-4, 4e-4)


def rloo(one: Arrays) -> float:
    return clip(np.exp(np.sum(one["logprobs"] - one["proximal"])), one["advantages"][0], 0.2, 0.2)


def sapo(one: Arrays) -> float:
    tau = 1.0 if one["advantages"][0] > 0 else 1.05
    gate = 4 / tau / (1 + np.exp(-tau * (ratios(one) - 1)))
    return float(np.mean(gate * one["advantages"]))


def dpo(given: Arrays) -> float:
    log_ratios = [np.sum(one["logprobs"] - one["reference"]) for one in sequences(given)]
    margins = [0.1 * (log_ratios[i] - log_ratios[i + 1]) for i in range(0, len(LENGTHS), 2)]
    return float(np.mean([-np.log(1 / (1 + np.exp(-m))) for m in margins]))


def ppo(given: Arrays) -> float:
    near = np.clip(given["values"], given["old_values"] - 0.2, given["old_values"] + 0.2)
    errors = [max((v - r) ** 2, (c - r) ** 2) for v, c, r in zip(given["values"], near, given["returns"], strict=True)]
    return over_tokens(given, lambda one: tokens(one, 0.2, 0.2)) + 0.1 * 0.5 * float(np.mean(errors))


def cispo_surrogate(given: Arrays) -> float:
    """Its weights are constants, so the gradient is that of the sum with the weights of `made`."""
    weights = np.minimum(np.exp(made()["logprobs"] - given["proximal"]), 5.0)
    return -float(np.mean(weights * given["advantages"] * given["logprobs"]))


def distill(given: Arrays) -> float:
    gap = np.clip(given["teacher"] - given["proximal"], -10, 10)
    return -float(np.mean(np.exp(given["logprobs"] - given["proximal"]) * gap))


PAPERS: dict[str, Callable[[Arrays], float]] = {
    "sft": lambda given: -float(np.mean(given["logprobs"])),
    "dpo": dpo,
    "grpo": lambda given: over_episodes(given, lambda one: float(np.mean(tokens(one, 0.2, 0.2)))),
    "dr_grpo": lambda given: over_episodes(given, lambda one: sum(tokens(one, 0.2, 0.2)) / 512),
    "dapo": lambda given: over_tokens(given, lambda one: tokens(one, 0.2, 0.28)),
    "rloo": lambda given: over_episodes(given, rloo),
    "reinforce_pp": lambda given: over_tokens(given, lambda one: tokens(one, 0.2, 0.2)),
    "gspo": lambda given: over_episodes(given, gspo),
    "cispo": cispo_surrogate,
    "sapo": lambda given: over_episodes(given, sapo),
    "ppo": ppo,
    "decoupled_ppo": lambda given: over_tokens(given, lambda one: tokens(one, 0.2, 0.2)),
    "distill": distill,
}


def test_every_objective_has_its_paper_here() -> None:
    assert set(PAPERS) == set(OBJECTIVES) == set(LOSSES)


@pytest.mark.parametrize(
    ("name", "spread"),
    [*((name, 0.3) for name in OBJECTIVES), *((name, 1e-4) for name in OBJECTIVES if name != "cispo")],
)
def test_an_objective_is_its_formula_in_value_and_gradient(name: str, spread: float) -> None:
    """The small spread leaves GSPO's ratio inside of its bounds. In float32 as well, to 1e-6."""
    given, options = made(spread), OBJECTIVES[name]()
    expected = PAPERS[name](given)
    gradient = {wanted: _differences(PAPERS[name], given, wanted) for wanted in ("logprobs", "values")}
    for dtype, tolerance in ((torch.float64, 1e-8), (torch.float32, 1e-6)):
        built, normaliser = inputs(given, options, dtype)
        loss = LOSSES[name](built, options).total / normaliser
        loss.backward()
        assert loss.item() == pytest.approx(expected, rel=tolerance, abs=tolerance)
        for wanted, numbers in gradient.items():
            found = getattr(built, wanted).grad
            found = np.zeros(sum(LENGTHS)) if found is None else found.numpy()
            np.testing.assert_allclose(found, numbers, rtol=1e-5, atol=1e-6)


def _differences(function: Callable[[Arrays], float], given: Arrays, wanted: str, step: float = 1e-6) -> np.ndarray:
    slopes = np.zeros(sum(LENGTHS))
    for t in range(len(slopes)):
        shift = np.zeros(len(slopes))
        shift[t] = step
        up, down = (given | {wanted: given[wanted] + sign * shift} for sign in (1, -1))
        slopes[t] = (function(up) - function(down)) / (2 * step)
    return slopes


@pytest.mark.parametrize("name", sorted(set(OBJECTIVES) - {"sft", "dpo", "ppo", "distill"}))
def test_on_policy_every_policy_gradient_is_reinforce(name: str) -> None:
    given = made(0.0)
    options = OBJECTIVES[name]()
    built, normaliser = inputs(given, options)
    (LOSSES[name](built, options).total / normaliser).backward()
    factor = 1 / options.budget if name == "dr_grpo" else 1.0
    expected = -factor * built.weights.numpy() * given["advantages"] / normaliser
    np.testing.assert_allclose(built.logprobs.grad.numpy(), expected, rtol=1e-9)


# --- corrections: pi_proximal / pi_behaviour, token by token or sequence by sequence -----------------------------------


def by_level(given: Arrays, level: str) -> np.ndarray:
    found = []
    for one in sequences(given):
        log_ratio = one["proximal"] - one["behaviour"]
        whole = np.sum(log_ratio) if level == "sequence" else np.mean(log_ratio)
        found.append(np.exp(log_ratio if level == "token" else np.full(len(log_ratio), whole)))
    return np.concatenate(found)


@pytest.mark.parametrize("level", ["token", "sequence", "geometric"])
def test_truncated_and_masked_importance_sampling(level: str) -> None:
    given = made()
    raw = by_level(given, level)
    low, high = np.quantile(raw, [0.3, 0.7])
    numbers = inputs(given, OBJECTIVES["grpo"]())[0].sequences
    proximal, behaviour = (torch.from_numpy(given[name]) for name in ("proximal", "behaviour"))
    truncated, about = correct(proximal, behaviour, Truncate(level=level, high=high), numbers)
    np.testing.assert_allclose(truncated, np.minimum(raw, high), rtol=1e-12)
    assert about["importance_truncated"] == (raw > high).sum()
    masked, about = correct(proximal, behaviour, Mask(level=level, low=low, high=high), numbers)
    np.testing.assert_allclose(masked, np.where((raw >= low) & (raw <= high), raw, 0), rtol=1e-12)
    assert about["importance_masked"] == ((raw < low) | (raw > high)).sum() > 0


def test_icepop_leaves_out_tokens_on_both_sides() -> None:
    raw = np.array([0.4, 0.5001, 1.0, 4.999, 5.1])
    weight, _ = correct(torch.from_numpy(np.log(raw)), torch.zeros(5, dtype=torch.float64), IcePop())
    np.testing.assert_allclose(weight, [0, 0.5001, 1.0, 4.999, 0], rtol=1e-12)


def test_kpop_goes_by_binary_divergence_in_both_directions() -> None:
    given = made(1.0)
    p, q = np.exp(np.minimum(given["proximal"], -1e-3)), np.exp(np.minimum(given["behaviour"], -1e-3))
    forward = p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))
    backward = q * np.log(q / p) + (1 - q) * np.log((1 - q) / (1 - p))
    keep = (forward <= 0.1) & (backward <= 0.1)
    weight, about = correct(torch.from_numpy(np.log(p)), torch.from_numpy(np.log(q)), KPop())
    np.testing.assert_allclose(weight, np.where(keep, p / q, 0), rtol=1e-9)
    assert 0 < about["importance_masked"] == (~keep).sum() < len(p)
    sure, _ = correct(torch.zeros(1), torch.full((1,), -1e-7), KPop())
    assert torch.isfinite(sure).all()


def test_m2po_leaves_out_the_farthest_tokens_until_the_second_moment_is_small() -> None:
    log_ratio = made()["proximal"] - made()["behaviour"]
    limit, kept = 0.04, list(range(len(log_ratio)))
    while np.mean(log_ratio[kept] ** 2) > limit:
        kept.remove(max(kept, key=lambda t: log_ratio[t] ** 2))
    cutoff = second_moment_cutoff(log_ratio, limit)
    weight, _ = correct(
        torch.from_numpy(log_ratio), torch.zeros(len(log_ratio), dtype=torch.float64), M2po(), cutoff=cutoff
    )
    assert np.flatnonzero(weight.numpy()).tolist() == kept
    assert 0 < len(kept) < len(log_ratio)
    assert second_moment_cutoff(np.array([0.1, -0.1]), 1.0) == pytest.approx(0.01)
    nothing, _ = correct(torch.ones(2), torch.zeros(2), M2po(), cutoff=second_moment_cutoff(np.ones(2), 0.1))
    assert not nothing.any()


# --- what a run adds to any objective -----------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", ["k2", "k3"])
def test_a_kl_term_is_added_to_the_loss(estimator: str) -> None:
    given, options = made(), OBJECTIVES["dapo"]()
    built, normaliser = inputs(given, options)
    run = config(options, kl={"estimator": estimator, "coefficient": 0.7}, reference="ref")
    loss = compute(built, torch.zeros(sum(LENGTHS), dtype=torch.float64), run)
    d = given["logprobs"] - given["reference"]
    distance = d**2 / 2 if estimator == "k2" else np.exp(-d) - 1 + d
    assert loss.total.item() / normaliser == pytest.approx(PAPERS["dapo"](given) + 0.7 * distance.mean(), rel=1e-9)
    assert loss.metrics["kl_to_reference"].item() == pytest.approx(distance.sum(), rel=1e-9)


@pytest.mark.parametrize("unbiased", [False, True])
def test_k3_as_a_loss_moves_to_the_reference_by_the_divergence_its_gradient_is_of(unbiased: bool) -> None:
    """In expectation: every token of a vocabulary once, weighed by its probability."""
    scores, other = torch.randn(2, 7, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    policy, reference = scores.requires_grad_().log_softmax(0), other.log_softmax(0)
    at = policy.detach()
    numbers, zeros = torch.arange(7), torch.zeros(7, dtype=torch.float64)
    built = LossInputs(policy, at, at, zeros, numbers, weights=at.exp(), importance=at.exp(), reference=reference)
    run = config(OBJECTIVES["dapo"](), kl={"coefficient": 1.0, "unbiased": unbiased}, reference="ref")
    found = compute(built, zeros, run)
    forward, reverse = ((one.exp() * (one - two)).sum() for one, two in ((reference, policy), (policy, reference)))
    assert found.total.item() == pytest.approx(reverse.item(), rel=1e-12)
    expected = torch.autograd.grad(reverse if unbiased else forward, scores, retain_graph=True)[0]
    torch.testing.assert_close(torch.autograd.grad(found.total, scores)[0], expected, rtol=1e-9, atol=1e-12)


def test_k1_pays_a_token_for_what_the_reference_gives_it_and_never_an_unlikely_one() -> None:
    given, options = made(), OBJECTIVES["dapo"]()
    built, normaliser = inputs(given, options)
    run = config(options, kl={"estimator": "k1", "coefficient": 0.7}, reference="ref")
    loss = compute(built, torch.zeros(sum(LENGTHS), dtype=torch.float64), run)
    shaped = given | {"advantages": given["advantages"] - 0.7 * (given["proximal"] - given["reference"])}
    assert loss.total.item() / normaliser == pytest.approx(PAPERS["dapo"](shaped), rel=1e-9)
    unlikely = replace(built, reference=None)
    with pytest.raises(AssertionError, match="needs a reference"):
        compute(unlikely, torch.zeros(sum(LENGTHS)), run)


def test_an_entropy_bonus_is_taken_from_the_loss() -> None:
    given, options = made(), OBJECTIVES["grpo"]()
    built, normaliser = inputs(given, options)
    entropy = torch.linspace(0, 1, sum(LENGTHS), dtype=torch.float64, requires_grad=True)
    loss = compute(built, entropy, config(options, entropy_bonus=0.3)).total / normaliser
    loss.backward()
    np.testing.assert_allclose(entropy.grad.numpy(), -0.3 * built.weights.numpy() / normaliser, rtol=1e-12)


# --- what counts once ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "rloo", "gspo", "sapo"])
def test_an_episode_counts_once_however_many_rows_it_makes(name: str) -> None:
    rows = [row(0, 4, "a"), row(1, 6, "a"), row(2, 10, "b")]
    weighing = aggregation.weighing(rows, config(OBJECTIVES[name]()))
    assert weighing.normaliser([0, 1, 2]) == pytest.approx(2)
    if OBJECTIVES[name]().aggregation == "sequence":
        assert weighing.of_token == pytest.approx([0.1, 0.1, 0.1])
        assert weighing.normaliser([0]) == pytest.approx(0.4)


def test_advantages_are_normalised_over_episodes_and_not_over_rows_or_tokens() -> None:
    rows = [row(0, 2, "short"), row(1, 30, "long"), row(2, 30, "long")]
    values = {i: np.zeros(len(one.positions), np.float32) for i, one in enumerate(rows)}
    rewards = {i: np.append(np.zeros(len(one.positions) - 1), 1.0 if i == 0 else 0.0) for i, one in enumerate(rows)}
    advantages, _ = gae.estimate(values, rewards, rows, Ppo(gae_lambda=1.0))
    assert advantages[0] == pytest.approx([1, 1], abs=1e-5)  # two episodes, one solved: mean 0.5, deviation 0.5
    assert advantages[1] == pytest.approx(np.full(30, -1.0), abs=1e-5)


def test_gae_is_its_double_sum() -> None:
    options = Ppo(gamma=0.9, gae_lambda=0.8, normalise=False)
    values, rewards = RNG.normal(size=6).astype(np.float32), RNG.normal(size=6)
    advantages, returns = gae.estimate({0: values}, {0: rewards}, [row(0, 6)], options)
    following = np.append(values[1:].astype(np.float64), 0.0)
    delta = rewards + 0.9 * following - values
    expected = [sum((0.9 * 0.8) ** k * delta[t + k] for k in range(6 - t)) for t in range(6)]
    np.testing.assert_allclose(advantages[0], expected, rtol=1e-5)
    np.testing.assert_allclose(returns[0], np.array(expected) + values, rtol=1e-5)


def test_the_last_token_ends_a_row_whatever_its_id() -> None:
    """No end is inferred from padding or an end-of-sequence id: rows differ in ids only, and their advantages do not."""
    values, rewards = np.ones(3, np.float32), np.array([0.0, 0.0, 1.0])
    ended = replace(row(0, 3), ids=np.array([5, 6, 7, 1]))
    cut = replace(row(1, 3), ids=np.array([5, 6, 7, 0]))
    advantages, _ = gae.estimate({0: values, 1: values}, {0: rewards, 1: rewards}, [ended, cut], Ppo(normalise=False))
    np.testing.assert_array_equal(advantages[0], advantages[1])
