"""The engine on JAX: a step is one program with global meaning, which XLA divides among the devices."""

from multigpu.engines.jax.jax_names import JAX

JAX.check()
