"""Memory and operations of a step, read from TensorFlow's graphs."""
