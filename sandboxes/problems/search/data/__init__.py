"""The shipped corpus and the program that made it."""
