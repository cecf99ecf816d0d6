"""Rows of words as a table of text."""

from collections.abc import Sequence


def text_table(lines: Sequence[Sequence[str]]) -> str:
    """Lines of equally many cells, the head first, in columns that are flush right."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)


def megabytes(size: int | None) -> str:
    """A number of bytes in words."""
    return "-" if size is None else f"{size / 1e6:,.2f} MB"
