"""Tables: rows of one kind, which print as text, and which R shows as a data frame."""

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar, Generic, TypeVar

Row = TypeVar("Row")


class Table(tuple[Row, ...], Generic[Row]):
    """Rows that are objects of one dataclass.

    Attributes:
        of: the dataclass.
        head: what stands above the columns when the table is printed.
    """

    of: ClassVar[Any]
    head: ClassVar[Sequence[str]]

    @classmethod
    def columns(cls) -> list[str]:
        """Names of the columns: the attributes of a row."""
        return [field.name for field in dataclasses.fields(cls.of)]

    def cells(self, row: Row) -> list[str]:
        """A row as words, one under each word of `head`."""
        raise NotImplementedError

    def __str__(self) -> str:
        return text_table([self.head, *map(self.cells, self)])

    def __repr__(self) -> str:
        return str(self)


def text_table(lines: Sequence[Sequence[str]]) -> str:
    """Lines of equally many cells, the head first, in columns that are flush right."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)


def megabytes(size: int | None) -> str:
    """A number of bytes in words: two decimals, and more of what is so small that they would say little."""
    if size is None:
        return "-"
    decimals = 2 if size == 0 or size >= 1e5 else min(6, 8 - len(str(int(size))))
    return f"{size / 1e6:,.{decimals}f} MB"
