"""A table of the layers: weights, work and output of each, to choose where to cut a model."""

import keras

from multigpu.base.table import Table, megabytes, millions
from multigpu.engines import estimate_layers
from multigpu.plan.estimates import LayerEstimate


class LayerTable(Table[LayerEstimate]):
    """One row per call of a layer, in the order of the calls, which prints as a table."""

    __slots__ = ()
    of = LayerEstimate
    head = ("layer", "weights", "so far", "work per row", "so far", "output per row", "cut behind it")

    def cells(self, row: LayerEstimate) -> list[str]:
        """Return the cells of a row as text."""
        return [
            row.name,
            megabytes(row.weights),
            f"{row.weights_share:.1%}",
            millions(row.work, "MFLOP"),
            "-" if row.work_share is None else f"{row.work_share:.1%}",
            megabytes(row.output),
            megabytes(row.crossing),
        ]


def layer_table(template: keras.Model) -> LayerTable:
    """Return the table of a template, from a trace of one row.

    Raises:
        ValueError: the shapes of the template's inputs are unknown.
    """
    return LayerTable(estimate_layers(template))
