"""What goes wrong with engines and models. Every message names the cause and the remedy."""


class ServingError(RuntimeError):
    """Base of the errors of this package."""


class EngineError(ServingError):
    """The engine did not do what was asked; the message has the call and the engine's own words."""


class EngineMissing(ServingError):
    """There is no environment with vLLM in it."""


class ModelError(ServingError):
    """The model can not be used: something is missing from its folder, or it could not be fetched or converted."""


class ProbeError(ServingError):
    """The log-probs to compare with could not be computed."""


class Unchanged(ServingError):
    """A new version whose weights are those it was trained from."""
