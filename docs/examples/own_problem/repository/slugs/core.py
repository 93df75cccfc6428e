"""Titles as they stand in addresses."""

import re


def words(title):
    """The words of a title, in lower case."""
    return re.findall(r"[a-z0-9]+", title.lower())


def slugify(title, limit=40):
    """Words joined by hyphens, as many as fit into `limit` characters."""
    slug = ""
    for word in words(title):
        longer = f"{slug}-{word}" if slug else word
        if len(longer) >= limit:
            break
        slug = longer
    return slug
