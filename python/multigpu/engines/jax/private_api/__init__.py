"""The private names of Keras on JAX that this package uses, with their reasons."""

from multigpu.private_api.required import Required

KERAS_ON_JAX = Required(
    library="Keras",
    package="keras",
    lowest="3.15.1",
    newest="3.15.1",
    attributes={
        "keras:Layer": ("_clear_losses",),
        "keras:Variable": ("value",),
        "keras.src.backend.common.stateless_scope": ("in_stateless_scope",),
        "keras.src.backend.jax.trainer": ("_distribute_data",),
    },
    names_in_code={
        "keras:Variable": ("_value",),
        "keras.src.backend.jax.trainer:JAXEpochIterator": ("_distribute_data",),
        "keras.src.backend.jax.trainer:JAXTrainer": ("_jax_state", "_jax_state_synced"),
    },
)

KERAS_ON_JAX.check()
