"""The recording gateway: the only door between an agent and a model."""
