"""The engine on JAX: a step is one program with global meaning, which XLA divides among the devices."""
