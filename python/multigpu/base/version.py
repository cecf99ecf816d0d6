"""The version of the Python and the R package."""

__version__ = "0.1.0"
