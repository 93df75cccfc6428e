"""Problems in the forms that others keep them in, by the form's name."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from lakehouse.records import Problem
from sandboxes.problems import external, python, search, terminal
from sandboxes.problems.foreign import BadRow, Terms

FORMATS: dict[str, Callable[[Path, Terms], list[Problem]]] = {
    "external": external.rows.problems,
    "gsm8k": python.rows.problems,
    "terminal": terminal.folder.problems,
    **{form: partial(search.imports.problems, form) for form in search.formats.FORMATS},
}


def read(form: str, path: Path, terms: Terms) -> list[Problem]:
    """The problems in a file or folder. BadRow where the form is not known, or what is there is not of it."""
    if form not in FORMATS:
        raise BadRow(f"no form is called {form!r}; there are {', '.join(sorted(FORMATS))}")
    return FORMATS[form](path, terms)


def terms(**values: Any) -> Terms:
    """The terms as a person wrote them. BadRow where they make no sense."""
    try:
        return Terms.model_validate(values)
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
        raise BadRow(f"these terms cannot be taken: {wrong}") from error
