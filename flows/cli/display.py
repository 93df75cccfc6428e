"""A progress bar per piece of work, on a terminal; a line at its start and end elsewhere."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn


@contextmanager
def progress_display(console: Console) -> Iterator[None]:
    """Show what `tasks.progress` reports while the block runs."""
    from tasks.progress import listening

    if not console.is_terminal:
        with listening(lambda what, done, total: _line(console, what, done, total)):
            yield
        return
    columns = (TextColumn("{task.description:<28}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        bars: dict[str, TaskID] = {}

        def show(what: str, done: int, total: int) -> None:
            if what not in bars or done == 0:
                bars[what] = progress.add_task(what, total=total)
            progress.update(bars[what], completed=done)

        with listening(show):
            yield


def _line(console: Console, what: str, done: int, total: int) -> None:
    if done in (0, total):
        console.print(f"{what}: {done} of {total}", highlight=False, markup=False)
