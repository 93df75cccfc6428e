"""Agents: need only a base URL and a key."""
