"""Random models in two parts, each trained twice: on one device and in groups of devices."""

import functools

from bench.soak import trainings
from bench.soak.draw import DrawInParts

rows = functools.partial(trainings.rows, drawn=DrawInParts)
