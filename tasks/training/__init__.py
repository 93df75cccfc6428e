"""The trainer, launched as `torchrun -m tasks.training`."""

import os

# Set before torch loads OpenMP. By default its threads spin at every barrier: on two cores that others use too, one
# process with two threads then trained three times slower (431 instead of 1,492 tokens/s).
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
