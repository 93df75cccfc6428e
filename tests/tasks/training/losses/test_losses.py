"""Loss values and gradients against closed forms in float64."""

import numpy as np
import pytest
import torch

from tasks.training.config import TrainConfig
from tasks.training.losses import LOSSES, compute
from tasks.training.losses.base import LossInputs
from tasks.training.losses.correction import correct
from tasks.training.losses.grpo import grpo
from tasks.training.losses.sft import sft
from tasks.training.objectives import OBJECTIVES, Grpo, M2po, Mask, Sft, Truncate
from tasks.training.step.histograms import of_ratio

TOKENS = 200


def inputs(seed: int = 0, spread: float = 0.4, high: float = 2.0) -> LossInputs:
    rng = np.random.default_rng(seed)
    behaviour = rng.normal(-2, 1, TOKENS)
    proximal = behaviour + rng.normal(0, spread, TOKENS)
    current = proximal + rng.normal(0, spread, TOKENS)
    advantages = rng.choice([-1.5, 0.0, 0.7], TOKENS)
    as_tensor = [torch.from_numpy(values) for values in (current, proximal, behaviour, advantages)]
    as_tensor[0].requires_grad_()
    return LossInputs(
        *as_tensor,
        sequences=torch.arange(10).repeat_interleave(TOKENS // 10),
        weights=torch.ones(TOKENS, dtype=torch.float64),
        importance=correct(as_tensor[1], as_tensor[2], Truncate(high=high))[0],
    )


def test_sft_is_the_negative_log_likelihood_with_gradient_minus_one() -> None:
    given = inputs()
    loss = sft(given, Sft())
    loss.total.backward()
    assert loss.total.item() == pytest.approx(-given.logprobs.detach().numpy().sum(), rel=1e-12)
    assert torch.equal(given.logprobs.grad, torch.full_like(given.logprobs, -1))


def test_grpo_equals_its_formula_token_by_token() -> None:
    given, options = inputs(high=1.4), Grpo(clip_low=0.2, clip_high=0.3)
    loss = grpo(given, options)
    loss.total.backward()
    total, gradient = 0.0, np.zeros(TOKENS)
    rows = (t.detach().numpy() for t in (given.logprobs, given.proximal, given.behaviour, given.advantages))
    for t, (current, proximal, behaviour, advantage) in enumerate(zip(*rows, strict=True)):
        ratio, weight = np.exp(current - proximal), min(np.exp(proximal - behaviour), 1.4)
        clipped = min(max(ratio, 0.8), 1.3)
        total -= weight * min(ratio * advantage, clipped * advantage)
        is_free = 0.8 <= ratio <= 1.3 or ratio * advantage <= clipped * advantage
        gradient[t] = -weight * advantage * ratio if is_free else 0.0
    assert loss.total.item() == pytest.approx(total, rel=1e-12)
    np.testing.assert_allclose(given.logprobs.grad.numpy(), gradient, rtol=1e-12, atol=1e-15)


def test_grpo_on_policy_is_the_policy_gradient() -> None:
    given = inputs(spread=0.0)
    grpo(given, Grpo()).total.backward()
    torch.testing.assert_close(given.logprobs.grad, -given.advantages, rtol=1e-12, atol=0)


def test_grpo_counts_what_it_clips_and_truncates() -> None:
    given = inputs()
    metrics = grpo(given, Grpo(clip_high=0.28)).metrics
    assert (
        correct(given.proximal, given.behaviour, Truncate(high=1.4))[1]["importance_truncated"]
        == ((given.proximal - given.behaviour).exp() > 1.4).sum()
    )
    ratio, advantages = (given.logprobs - given.proximal).exp().detach(), given.advantages
    assert metrics["clip_fraction"] == (((ratio > 1.28) & (advantages > 0)) | ((ratio < 0.8) & (advantages < 0))).sum()
    assert metrics["kl_to_proximal"] >= 0
    assert metrics["positive_tokens"] + metrics["negative_tokens"] + (advantages == 0).sum() == TOKENS


def test_gspo_keeps_a_ratio_near_1_to_the_last_digit_of_float32_beside_unlikely_tokens() -> None:
    """Its bounds are 3e-4 apart from 1: a log-prob of -90 has digits of 8e-6, and the mean must not be cut to those."""
    proximal = torch.linspace(-90, -70, 8)
    current = (proximal + 1.25e-4).requires_grad_()
    mean = (current - proximal).mean().item()
    given = LossInputs(
        *(current, proximal, proximal, torch.ones(8)),
        sequences=torch.zeros(8, dtype=torch.int64),
        weights=torch.ones(8),
        importance=torch.ones(8),
    )
    loss = LOSSES["gspo"](given, OBJECTIVES["gspo"]())
    assert loss.metrics["ratio"].item() / 8 == pytest.approx(np.exp(mean), abs=1e-7)
    loss.total.backward()
    np.testing.assert_allclose(given.logprobs.grad.numpy(), -np.exp(mean), rtol=2e-7)


def test_the_divergence_of_a_small_step_is_its_square_and_not_rounding() -> None:
    """In float32 exp(d) - 1 - d of a d of 1e-4 is rounding, and may be negative."""
    d = torch.tensor([1e-4, -1e-4, 3e-4, -3e-4])
    given = LossInputs(
        *(d.clone().requires_grad_(), torch.zeros(4), torch.zeros(4), torch.ones(4)),
        sequences=torch.arange(4),
        weights=torch.ones(4),
        importance=torch.ones(4),
    )
    exact = np.expm1(d.double().numpy()) - d.double().numpy()
    assert grpo(given, Grpo()).metrics["kl_to_proximal"].item() == pytest.approx(exact.sum(), rel=1e-3)
    bins = [int(count) for name, count in of_ratio(d, torch.zeros(4)).items() if name.startswith("histogram/kl/")]
    assert bins[:4] == [2, 2, 0, 0]  # 5e-9 twice, 4.5e-8 twice; the first edges are 1e-8 and 1e-7


def test_no_tokens_give_a_loss_of_zero() -> None:
    nothing = torch.zeros(0, requires_grad=True)
    number = torch.zeros(0, dtype=torch.int64)
    known = dict.fromkeys(["reference", "teacher", "values", "old_values", "returns"], nothing)
    inputs = LossInputs(*[nothing] * 4, sequences=number, weights=nothing, importance=nothing, pairs=number, **known)
    for name, loss in LOSSES.items():
        found = loss(inputs, OBJECTIVES[name]())
        assert found.total.item() == 0
        assert not any(value.item() for value in found.metrics.values())


@pytest.mark.parametrize("scale", [0.0, 0.25, 1.0])
def test_grpo_scales_negative_advantages_and_leaves_positive_ones(scale: float) -> None:
    given = inputs(spread=0.0)
    run = {"model": "m", "rows": "r.parquet", "output": "o", "learning_rate": 1}
    config = TrainConfig.model_validate(run | {"objective": {"name": "grpo", "negative_scale": scale}})
    compute(given, torch.zeros(TOKENS), config).total.backward()
    expected = torch.where(given.advantages < 0, given.advantages * scale, given.advantages)
    torch.testing.assert_close(given.logprobs.grad, -expected, rtol=1e-12, atol=1e-15)


def far_off(nats: float, advantage: float) -> LossInputs:
    """Two sequences of 300 float32 tokens, each `nats` likelier than under the proximal policy and under all others."""
    current = torch.full((600,), -1.0, requires_grad=True)
    other = torch.full((600,), -1.0 - nats)
    known = dict.fromkeys(["reference", "teacher", "values", "old_values", "returns"], other)
    return LossInputs(
        *(current, other, other, torch.full((600,), advantage)),
        sequences=torch.arange(2).repeat_interleave(300),
        weights=torch.ones(600),
        importance=torch.ones(600),
        pairs=torch.zeros(600, dtype=torch.int64),
        **known,
    )


@pytest.mark.parametrize("nats", [0.4, 100.0, -0.4, -100.0])
@pytest.mark.parametrize("advantage", [1.0, -1.0])
@pytest.mark.parametrize("name", LOSSES)
def test_no_ratio_makes_a_loss_or_gradient_that_is_not_finite(name: str, advantage: float, nats: float) -> None:
    """exp() of 89 nats is infinite in float32: reached by one token, or by a sequence's sum."""
    given = far_off(nats, advantage)
    loss = LOSSES[name](given, OBJECTIVES[name]())
    loss.total.backward()
    assert torch.isfinite(loss.total)
    assert torch.isfinite(given.logprobs.grad).all()
    assert all(torch.isfinite(value) for value in loss.metrics.values())


@pytest.mark.parametrize("name", ["rloo", "grpo", "gspo"])
def test_what_became_far_too_likely_is_still_pushed_down(name: str) -> None:
    given = far_off(30.0, -1.0)
    LOSSES[name](given, OBJECTIVES[name]()).total.backward()
    assert (given.logprobs.grad > 0).all()


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
@pytest.mark.parametrize("nats", [100.0, -100.0])
def test_a_penalty_is_finite_however_far_the_reference_is(estimator: str, nats: float) -> None:
    given = far_off(nats, 1.0)
    run = {"model": "m", "rows": "r.parquet", "output": "o", "learning_rate": 1, "objective": "grpo", "reference": "r"}
    penalty = {"estimator": estimator, "coefficient": 0.1, "unbiased": estimator == "k3"}
    loss = compute(given, torch.zeros(600), TrainConfig.model_validate(run | {"kl": penalty}))
    loss.total.backward()
    assert torch.isfinite(loss.total)
    assert torch.isfinite(given.logprobs.grad).all()


@pytest.mark.parametrize(
    "correction", [Truncate(), M2po(), *(Mask(level=how) for how in ("token", "sequence", "geometric"))]
)
@pytest.mark.parametrize("nats", [0.4, 100.0, -100.0])
def test_a_corrections_weights_are_finite(correction: Truncate | M2po | Mask, nats: float) -> None:
    given = far_off(nats, 1.0)
    weights, metrics = correct(given.logprobs, given.behaviour, correction, given.sequences, 1e9)
    assert torch.isfinite(weights).all()
    assert all(torch.isfinite(value) for value in metrics.values())
