"""Flows: one file each; a flow file defines flows and nothing else."""
