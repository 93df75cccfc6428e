"""Where a splice goes. The tree counts UTF-8 bytes, the lines of a file characters; a splice keeps to one line."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

Placed = ast.expr | ast.stmt | ast.excepthandler | ast.keyword


@dataclass(frozen=True)
class Site:
    """A raw splice, before it is widened to something unique: characters [start, end) of a line become `new`."""

    line: int
    start: int
    end: int
    new: str
    kind: str


class Places:
    """The lines of a file, and what of them a node covers. What spans lines gives no site."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines

    def span(self, node: Placed, new: str, kind: str, *, until: Placed | None = None) -> Iterator[Site]:
        """Replace a node, or everything from its start to the end of another."""
        last = until or node
        if node.lineno == last.end_lineno:
            yield from self.text(node.lineno, self.start(node), self.end(last), new, kind)

    def after(self, node: ast.expr, last: ast.expr, new: str, kind: str) -> Iterator[Site]:
        """Replace from the end of one expression to the end of a later one; not where brackets lie between."""
        line = node.end_lineno
        if line is None or last.end_lineno != line or last.lineno != line:
            return
        start = self.end(node)
        if not {"(", ")"} & set(self._lines[line - 1][start : self.start(last)]):
            yield from self.text(line, start, self.end(last), new, kind)

    def between(self, left: ast.expr, right: ast.expr, old: str, news: tuple[str, ...], kind: str) -> Iterator[Site]:
        """Replace an operator between two expressions."""
        if left.end_lineno != right.lineno:
            return
        start = self.end(left)
        gap = self._lines[right.lineno - 1][start : self.start(right)]
        at = gap.find(old)
        if at >= 0 and not gap.strip("() ").replace(old, "", 1).strip("() "):
            for new in news:
                yield from self.text(right.lineno, start + at, start + at + len(old), new, kind)

    def word(self, node: Placed, old: str, new: str, kind: str) -> Iterator[Site]:
        """Replace the keyword that a node begins with."""
        start = self.start(node)
        if self._lines[node.lineno - 1].startswith(old, start):
            yield from self.text(node.lineno, start, start + len(old), new, kind)

    def text(self, line: int, start: int, end: int, new: str, kind: str) -> Iterator[Site]:
        if self._lines[line - 1][start:end] != new:
            yield Site(line, start, end, new, kind)

    def source(self, node: Placed) -> str:
        """A node's text; empty where it spans lines."""
        if node.lineno != node.end_lineno:
            return ""
        return self._lines[node.lineno - 1][self.start(node) : self.end(node)]

    def source_between(self, left: Placed, right: Placed) -> str:
        """The text between two nodes on one line."""
        return self._lines[right.lineno - 1][self.end(left) : self.start(right)]

    def alone(self, node: ast.stmt) -> bool:
        """Whether a statement has its line to itself."""
        line = self._lines[node.lineno - 1]
        return node.lineno == node.end_lineno and line.strip().partition("  #")[0] == self.source(node)

    def start(self, node: Placed) -> int:
        return self._character(node.lineno, node.col_offset)

    def end(self, node: Placed) -> int:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self._character(node.end_lineno, node.end_col_offset)

    def _character(self, line: int, offset: int) -> int:
        text = self._lines[line - 1]
        return offset if text.isascii() else len(text.encode()[:offset].decode())
