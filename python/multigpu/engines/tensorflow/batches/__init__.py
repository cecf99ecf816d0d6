"""Arguments of a call, rows and slices, and large arrays as batches for `fit()`."""
