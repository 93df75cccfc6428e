"""Judges: what measures an episode after its box is gone. A model behind an endpoint, or a Python function."""

from tasks.judges.base import Judge, JudgeFailed, JudgeMisconfigured, Measured
from tasks.judges.endpoint import EndpointJudge
from tasks.judges.function import FunctionJudge
from tasks.judges.prompt import Prompt

__all__ = ["EndpointJudge", "FunctionJudge", "Judge", "JudgeFailed", "JudgeMisconfigured", "Measured", "Prompt"]
