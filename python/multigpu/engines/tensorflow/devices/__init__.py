"""TensorFlow's devices: which there are, and what they are parts of."""
