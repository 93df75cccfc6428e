"""Objectives, one file each: `loss(inputs, ...) -> Loss`, with the formula and the paper in the docstring."""
