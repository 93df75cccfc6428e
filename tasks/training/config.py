"""What a training run is told. Imports no torch, so that flows, forms and tests can build and check a config fast."""

import sys
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from lakehouse.selection.estimators import Estimator
from tasks.training.combinations import refuse_senseless
from tasks.training.objectives import (
    AnyCorrection,
    AnyObjective,
    Kl,
    Options,
    Proximal,
    default_correction,
)


class Dataset(Options):
    """An input of the run as MLflow's `mlflow.data` keeps one."""

    name: str
    digest: str = Field(description="MLflow keeps 36 characters.")
    context: str = "training"
    source_type: str = Field(default="delta_table", description="A type that `mlflow.data` knows.")
    source: dict[str, str | int] = Field(default={}, description="For a Delta table `path` and `delta_table_version`.")
    profile: dict[str, str | int] = Field(default={}, description="Counts and names for people.")


class MlflowTarget(Options):
    """Where metrics go live. Without `run_id` a run is created."""

    tracking_uri: str = Field(pattern=r"^https?://", description="URL of an MLflow tracking server.")
    experiment: str = "training"
    run_id: str | None = None
    run_name: str | None = None
    tags: dict[str, str] = Field(default_factory=dict)
    datasets: list[Dataset] = Field(default_factory=list)


class LoraOptions(Options):
    """Low-rank adapters (arXiv 2106.09685): W + (alpha / rank) B A, of which only A and B are trained."""

    rank: int = Field(default=16, ge=1)
    alpha: int = Field(default=32, ge=1)
    target_modules: Literal["all-linear"] | list[str] = Field(
        default="all-linear", description="Ends of module names, such as q_proj; all-linear: every matrix but the head."
    )


class TrainConfig(Options):
    """One training run: from a model folder and a file of training rows to a new model folder."""

    objective: AnyObjective = Field(description='Name and options, such as {"name": "grpo", "clip_high": 0.28}.')
    model: Path = Field(description="Input folder in Hugging Face format.")
    rows: Path = Field(description="Training rows, `.parquet` or `.arrow`, with the columns of `TrainingRow`.")
    output: Path = Field(description="Output folder in Hugging Face format. It appears complete or not at all.")
    work: Path | None = Field(
        None, description="Checkpoints and metrics.jsonl; by default the output's name plus `.work`."
    )

    learning_rate: float = Field(ge=0)
    schedule: Literal["constant", "cosine"] = "constant"
    warmup_steps: int = Field(default=0, ge=0)
    weight_decay: float = Field(default=0.0, ge=0)
    grad_clip: float = Field(default=1.0, gt=0)
    epochs: int = Field(default=1, ge=1)
    max_steps: int | None = Field(default=None, ge=1, description="Stop after so many optimiser steps.")
    minibatch: int = Field(default=64, ge=1, description="Size of one optimiser step, over all ranks.")
    minibatch_unit: Literal["rows", "tokens"] = "rows"
    micro_batch_tokens: int = Field(default=2048, ge=1, description="Tokens in one forward pass of one rank.")
    max_seq_len: int = Field(default=2048, ge=2, description="A longer row is refused.")
    shared_prefix: int | None = Field(
        default=32,
        ge=1,
        description="Rows of a step that begin with so many equal tokens compute them once; null: never.",
    )
    attention: Literal["auto", "segments", "flex", "dense"] = Field(
        default="auto", description="How attention keeps rows apart: segments on CPU, flex on CUDA, dense anywhere."
    )

    temperature: float = Field(
        default=1.0, gt=0, description="The rollouts' temperature: their log-probs were taken after it."
    )
    advantage: Estimator | None = Field(
        default=None, description="How the training set's advantages were made; null: they are taken on trust."
    )
    proximal: Proximal = Field(
        default="recomputed",
        description="The ratio's denominator: the trainer's log-probs before the first step, the engine's, or between the two.",
    )
    correction: AnyCorrection | None = Field(
        default_factory=default_correction, description="Weight of a token whose sampler was not the proximal policy."
    )
    kl: Kl | None = Field(default=None, description="Penalty on the distance to `reference`.")
    entropy_bonus: float = Field(default=0.0, ge=0, description="Reward per nat of entropy at a trained token.")
    reference: Path | None = Field(
        default=None, description="Model folder that kl is measured to; dpo's, by default, is the input model."
    )
    teacher: Path | None = Field(default=None, description="Model folder that distill learns from.")
    policy_version: int | None = Field(
        default=None, description="Version of the input model; by default the rows' newest."
    )
    agreement_bound: float | None = Field(
        default=0.05, gt=0, description="Largest mean |trainer - engine| log-prob on on-policy rows, in nats."
    )

    trained_tokens: int | None = Field(
        default=None, ge=1, description="Trained tokens of the training set by its ledger; the rows must hold as many."
    )
    max_skipped_steps: int = Field(
        default=3, ge=0, description="Steps with a NaN or infinite loss are skipped; beyond so many the run stops."
    )

    seed: int = 0
    ranks: int = Field(default=1, ge=1, description="Processes under torchrun, over all nodes.")
    device: Literal["auto", "cpu", "cuda"] = "auto"
    tensor_parallel: int = Field(
        default=1, ge=1, description="Ranks that hold one copy of the matrices together; divides ranks."
    )
    context_parallel: int = Field(default=1, ge=1, description="Ranks that share one sequence: 1, more is refused.")
    activation_checkpointing: bool = False
    compile: bool = Field(default=False, description="Compile each decoder layer with torch.compile; needs a compiler.")
    lora: LoraOptions | None = Field(default=None, description="Train adapters; the output is the merged model.")
    checkpoint_every: int = Field(default=0, ge=0, description="Steps between resumable checkpoints; 0 for none.")
    timeout_s: float = Field(default=600, gt=0, description="Longest silence of a rank that others wait for.")
    mlflow: MlflowTarget | None = None

    @field_validator("temperature", mode="before")
    @classmethod
    def _sampled(cls, value: Any) -> Any:
        if value == 0:
            raise ValueError(
                "temperature 0: every sample of a problem is the same, and a log-prob says nothing. Sample anew"
            )
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        refuse_senseless(self)
        if self.output.resolve() == self.model.resolve():
            raise ValueError("output is the model folder: a registered version is immutable, name another folder")
        if self.context_parallel > 1:
            raise ValueError(
                "context_parallel is not done: PyTorch's ring attention knows one causal sequence, and packed rows are a "
                "tree. For longer rows set activation_checkpointing, or tensor_parallel"
            )
        if self.ranks % self.tensor_parallel:
            raise ValueError(f"tensor_parallel={self.tensor_parallel} does not divide ranks={self.ranks}")
        if self.lora and self.tensor_parallel > 1:
            raise ValueError("lora with tensor_parallel is not done: adapters are small, use FSDP alone")
        return self

    @property
    def other_models(self) -> dict[str, Path]:
        """Models besides the one trained whose log-probs are learnt from, by what they are to it."""
        named = {"reference": self.reference, "teacher": self.teacher}
        return {what: folder for what, folder in named.items() if folder and folder.resolve() != self.model.resolve()}

    @property
    def work_folder(self) -> Path:
        return self.work or self.output.with_name(self.output.name + ".work")


def launch_command(config_file: Path, ranks: int, *, nodes: int = 1, rendezvous: str | None = None) -> list[str]:
    """The command line that trains with `ranks` processes on this machine.

    On several nodes it is run once on each, with the same `rendezvous` (`HOST:PORT`, on one of them) and the config's
    `ranks` counted over all; on one, rendezvous picks a free port.
    """
    meeting = ["--standalone"] if rendezvous is None else [f"--nnodes={nodes}", "--rdzv-backend=c10d"]
    meeting += [] if rendezvous is None else [f"--rdzv-endpoint={rendezvous}", f"--rdzv-id={config_file.stem}"]
    return [
        *(sys.executable, "-m", "torch.distributed.run", *meeting, f"--nproc-per-node={ranks}"),
        *("-m", "tasks.training", "--config", str(config_file)),
    ]
