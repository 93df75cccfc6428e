"""Inside TRL's own environment: train on recorded completions with its GRPO trainer and tell how long each step took.

Self-contained: `python train_trl.py FOLDER`. The folder holds `recorded.json` (prompts, completions, size of a group) and
`told.json` (model folder, groups per step, steps, rows per forward pass, longest completion). Sampling is replaced through
TRL's own `rollout_func`, which hands over the recorded ids; all else is TRL's: reward functions, advantages, padding, loss,
optimiser.
"""

import itertools
import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer


class Clock(TrainerCallback):
    """When each optimiser step ended."""

    def __init__(self) -> None:
        self.at: list[float] = []

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.at.append(time.time())


def train(folder: Path) -> None:
    told = json.loads((folder / "told.json").read_text())
    held = json.loads((folder / "recorded.json").read_text())
    size, rows = held["size"], told["groups"] * held["size"]
    torch.set_num_threads(told["threads"])
    completions = {
        number: held["completions"][number * size : (number + 1) * size] for number in range(len(held["prompts"]))
    }

    def rollout(prompts: list[str], _trainer: Any) -> dict[str, Any]:
        """TRL repeats a prompt for each sample; the n-th of them gets the n-th recorded completion."""
        seen: dict[int, int] = {}
        ids = []
        for number in map(int, prompts):
            ids.append(completions[number][seen.get(number, 0)])
            seen[number] = seen.get(number, 0) + 1
        return {"prompt_ids": [held["prompts"][int(p)] for p in prompts], "completion_ids": ids, "logprobs": None}

    def reward(completions: list[str], **_: Any) -> list[float | None]:
        return [float(i % 2) for i in range(len(completions))]

    clock = Clock()
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(told["model"], dtype=torch.float32),
        processing_class=AutoTokenizer.from_pretrained(told["model"]),
        reward_funcs=reward,
        rollout_func=rollout,
        train_dataset=Dataset.from_dict({"prompt": [str(i) for i in range(len(held["prompts"]))]}),
        callbacks=[clock],
        args=GRPOConfig(
            output_dir=str(folder / "out"),
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            per_device_train_batch_size=told["micro_batch"],
            gradient_accumulation_steps=rows // told["micro_batch"],
            num_generations=size,
            max_completion_length=told["longest"],
            max_steps=told["steps"],
            learning_rate=1e-6,
            lr_scheduler_type="constant",
            shuffle_dataset=False,
            logging_strategy="no",
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        ),
    )
    began = time.time()
    trainer.train()
    ends = [began, *clock.at]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    steps = [after - before for before, after in itertools.pairwise(ends)]
    (folder / "found.json").write_text(json.dumps({"steps": steps, "peak_mib": peak, "first_at": clock.at[0]}))


if __name__ == "__main__":
    train(Path(sys.argv[1]))
