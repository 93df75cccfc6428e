"""Governance: what goes, when, and who asked for it. Erasure, retention, vacuum, checks, the audit."""
