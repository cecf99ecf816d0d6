"""The engine on TensorFlow: replicas in one graph, with weights sent from their owners, and gradients reduced there."""
