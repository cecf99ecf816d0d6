"""What a step stores and computes, read from TensorFlow's graphs."""
