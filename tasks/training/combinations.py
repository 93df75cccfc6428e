"""Settings that make no sense together, refused by name before anything is loaded. Imports no torch."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tasks.training.objectives import M2po

if TYPE_CHECKING:
    from tasks.training.config import TrainConfig


def refuse_senseless(config: "TrainConfig") -> None:
    """ValueError with what is wrong and what to set instead, of every rule that is broken."""
    if broken := [*_missing(config), *_useless(config), *_contradictory(config)]:
        raise ValueError("; ".join(broken))


def _missing(config: "TrainConfig") -> Iterator[str]:
    name, needs = config.objective.name, config.objective.needs
    if config.kl and config.reference is None:
        yield "kl without a reference: name the model folder to stay close to, or leave kl out"
    if "teacher" in needs and config.teacher is None:
        yield f"{name} without a teacher: name the model folder to learn from"
    if name == "decoupled_ppo" and config.proximal == "behaviour":
        yield "decoupled_ppo with proximal=behaviour is plain ppo clipping: take proximal=recomputed or approximated"
    elif name == "decoupled_ppo" and config.correction is None:
        yield "decoupled_ppo without a correction leaves out what it is named for, the weight proximal/behaviour"


def _useless(config: "TrainConfig") -> Iterator[str]:
    name, needs = config.objective.name, config.objective.needs
    if config.reference and not config.kl and "reference" not in needs:
        yield f"a reference that nothing reads: {name} has no use for one without kl"
    if config.teacher and "teacher" not in needs:
        yield f"a teacher that nothing reads: {name} does not distill"
    if config.correction and "behaviour" not in needs:
        yield f"correction={config.correction.name} with {name}, which has no behaviour log-probs to correct for"
    elif config.correction and config.proximal == "behaviour":
        yield f"correction={config.correction.name} with proximal=behaviour: its weights would all be 1, take recomputed"
    if "behaviour" not in needs and (config.kl or config.entropy_bonus):
        yield f"kl or entropy_bonus with {name}: both are estimated on tokens that the policy sampled itself"


def _contradictory(config: "TrainConfig") -> Iterator[str]:
    name, fitting = config.objective.name, config.objective.estimators
    if config.advantage and config.advantage not in fitting:
        yield f"the training set's advantages are {config.advantage!r} and {name} takes {' or '.join(fitting)}: select anew"
    level = getattr(config.correction, "level", "token")
    if config.correction and config.objective.action == "sequence" and level == "token":
        yield f"correction={config.correction.name} token by token with {name}, whose action is the whole sequence: level=sequence"
    if level == "sequence" and {"critic", "teacher"} & config.objective.needs:
        yield f"a sequence-level correction with {name}, whose advantages differ from token to token: level=token"
    if isinstance(config.correction, M2po) and config.proximal == "approximated":
        yield "correction=m2po with proximal=approximated: its bound is on the recomputed policy's distance"
    if (
        config.kl
        and config.kl.estimator == "k1"
        and config.reference
        and config.reference.resolve() == config.model.resolve()
    ):
        yield "kl with k1 to the input model is 0 at every token, for k1 is measured before the first step: take k2 or k3"
    if config.kl and config.kl.estimator == "k1" and "teacher" in config.objective.needs:
        yield f"kl with k1 and {name}: k1 is taken from advantages, which {name} makes itself. Take k2 or k3"
