"""Isolation backends behind one interface."""
