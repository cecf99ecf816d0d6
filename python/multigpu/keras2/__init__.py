"""Names, arguments and habits of Keras 2, for scripts of its time: nothing of it happens before it is asked for."""
