"""Modules here are Prefect tasks; packages here are plain Python that never imports Prefect."""
