"""Weights that differ."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file


@pytest.fixture
def perturbed() -> Callable[[Path, Path], Path]:
    """`perturbed(source, target)`: a copy of the model in `source` with every weight moved a little."""

    def copy(source: Path, target: Path) -> Path:
        shutil.copytree(source, target)
        draw = np.random.default_rng(0)
        for file in target.glob("*.safetensors"):
            moved = {
                name: array + 0.02 * draw.standard_normal(array.shape, np.float32)
                for name, array in load_file(file).items()
            }
            save_file(moved, file, {"format": "pt"})
        return target

    return copy
