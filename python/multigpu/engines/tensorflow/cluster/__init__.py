"""Workers that train together over TensorFlow's collective ops."""
