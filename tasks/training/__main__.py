"""`torchrun -m tasks.training --config run.json`: check what can be checked without torch, then train."""

import argparse
import os
import sys
from pathlib import Path

from pydantic import ValidationError

from tasks.training import folder
from tasks.training.config import TrainConfig
from tasks.training.data import loading
from tasks.training.errors import TrainingError, report
from tasks.training.orphan import end_with_parent

parser = argparse.ArgumentParser(prog="tasks.training", description=__doc__)
parser.add_argument("--config", type=Path, required=True, help="a TrainConfig as JSON")

if "WORLD_SIZE" in os.environ:
    end_with_parent()
try:
    config = TrainConfig.model_validate_json(parser.parse_args().config.read_text())
    folder.check_model(config.model)
    rows = loading.load(config)
    from tasks.training.run import run  # torch takes seconds: a refusal must not wait for it

    run(config, rows)
    status = 0
except (TrainingError, ValidationError, OSError) as error:
    report(error)
    status = 1
sys.stdout.flush()
sys.stderr.flush()
# Nothing is left to write. Seen once in some thirty runs: a rank that had finished aborted on the interpreter's way out ("terminate
# called without an active exception", a thread of a library destroyed while it ran), and torchrun called the run failed.
# After a failure a thread may still wait for a rank that is gone.
os._exit(status)
