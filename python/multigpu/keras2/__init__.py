"""Names, arguments and behaviour of Keras 2, for old scripts. Only `restore_old_names()` changes anything."""
