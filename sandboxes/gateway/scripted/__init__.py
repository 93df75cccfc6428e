"""A scripted engine, for tests without a model."""
