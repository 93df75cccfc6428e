"""The trainer, launched as `torchrun -m tasks.training`."""
