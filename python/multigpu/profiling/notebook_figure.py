"""A figure that notebooks show when it is the value of a cell."""

import io

from matplotlib.figure import Figure

DOTS_PER_INCH = 110


class NotebookFigure(Figure):
    """A figure of matplotlib, without pyplot, which would keep it and choose a display."""

    def _repr_png_(self) -> bytes:
        file = io.BytesIO()
        self.savefig(file, format="png", dpi=DOTS_PER_INCH)
        return file.getvalue()
