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

    def text(self, width: int | None = None) -> str:
        """The table as text.

        Args:
            width: letters of a line; columns that do not fit stand below the others, with the first one again.
        """
        return text_table([self.head, *map(self.cells, self)], width)

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return str(self)


def text_table(lines: Sequence[Sequence[str]], width: int | None = None) -> str:
    """Lines of equally many cells, the head first, in columns that are flush right, within a width if there is one."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n\n".join(
        "\n".join("  ".join(line[column].rjust(widths[column]) for column in columns) for line in lines)
        for columns in _fitting(widths, width)
    )


def _fitting(widths: Sequence[int], width: int | None) -> list[list[int]]:
    """Numbers of the columns that stand beside each other; the first column in each group, and one more at least."""
    groups: list[list[int]] = [[0]]
    for column in range(1, len(widths)):
        taken = sum(widths[other] + 2 for other in groups[-1])
        if width is not None and len(groups[-1]) > 1 and taken + widths[column] > width:
            groups.append([0])
        groups[-1].append(column)
    return groups


def megabytes(size: int | None) -> str:
    """A number of bytes in words: two decimals, and more of what is so small that they would say little."""
    return millions(size, "MB")


def millions(number: int | None, unit: str) -> str:
    """Millions of something in words, likewise."""
    if number is None:
        return "-"
    decimals = 2 if number == 0 or number >= 1e5 else min(6, 8 - len(str(int(number))))
    return f"{number / 1e6:,.{decimals}f} {unit}"
