"""List TensorFlow's devices, and the hardware that they are parts of."""
