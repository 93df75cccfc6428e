"""One optimiser step: passes, weighing, advantages, update."""
