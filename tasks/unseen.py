"""Values that Prefect hands on as they are."""

from typing import TypeVar, cast

from prefect.utilities.annotations import quote

T = TypeVar("T")


def unseen(value: T) -> T:
    """A task's argument that Prefect does not search for futures: that walks through every token, 40 ms an episode."""
    return cast(T, quote(value))
