"""The private name of Keras on JAX that this package uses, with its reason."""

from multigpu.private_api.required import Required

KERAS_ON_JAX = Required(
    library="Keras",
    package="keras",
    lowest="3.15.1",
    newest="3.15.1",
    attributes={"keras.src.backend.jax.trainer": ("_distribute_data",)},
    names_in_code={"keras.src.backend.jax.trainer:JAXEpochIterator": ("_distribute_data",)},
)

KERAS_ON_JAX.check()
