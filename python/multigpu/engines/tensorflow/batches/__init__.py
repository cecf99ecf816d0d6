"""Arguments of a call, rows, slices, and arrays on their way to `fit()`."""
