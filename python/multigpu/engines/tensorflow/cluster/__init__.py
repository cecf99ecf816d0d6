"""Workers that train together with TensorFlow's collective ops."""
