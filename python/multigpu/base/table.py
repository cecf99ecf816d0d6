"""Tables of rows of one kind. They print as text, and R shows them as data frames."""

from collections.abc import Sequence
from typing import Any, ClassVar, Generic, TypeVar

Row = TypeVar("Row")
PAGE_WIDTH = 112  # letters of a line for which a page of the documentation has room


class Table(tuple[Row, ...], Generic[Row]):
    """A table whose rows are objects of one dataclass.

    Attributes:
        of: the dataclass of the rows.
        head: the column headings of the printed table.
    """

    of: ClassVar[Any]
    head: ClassVar[Sequence[str]]

    def cells(self, row: Row) -> list[str]:
        """Return the cells of a row as text, one for each heading."""
        raise NotImplementedError

    def text(self, width: int | None = None) -> str:
        """Return the table as text.

        Args:
            width: letters of a line. Columns that do not fit are printed below the others, and the first column is
                repeated.
        """
        return text_table([self.head, *map(self.cells, self)], width)

    def __repr__(self) -> str:
        return self.text(PAGE_WIDTH)


def text_table(lines: Sequence[Sequence[str]], width: int | None = None) -> str:
    """Return the lines of a table: the head, then the rows, right-aligned, within a width if one is given."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n\n".join(
        "\n".join("  ".join(line[column].rjust(widths[column]) for column in columns) for line in lines)
        for columns in _fitting(widths, width)
    )


def _fitting(widths: Sequence[int], width: int | None) -> list[list[int]]:
    """Return the numbers of the columns that fit beside each other: the first of each group, and at least one more."""
    groups: list[list[int]] = [[0]]
    for column in range(1, len(widths)):
        taken = sum(widths[other] + 2 for other in groups[-1])
        if width is not None and len(groups[-1]) > 1 and taken + widths[column] > width:
            groups.append([0])
        groups[-1].append(column)
    return groups


def megabytes(size: int | None) -> str:
    """Return a number of bytes as text in MB, with two decimals, or with more for small numbers."""
    return millions(size, "MB")


def millions(number: int | None, unit: str) -> str:
    """Return a number in millions as text, with two decimals, or with more for small numbers."""
    if number is None:
        return "-"
    decimals = 2 if number == 0 or number >= 1e5 else min(6, 8 - len(str(int(number))))
    return f"{number / 1e6:,.{decimals}f} {unit}"
