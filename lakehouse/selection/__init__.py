"""Training sets: which episodes, with what credit, as which rows, and what became of every other token."""
