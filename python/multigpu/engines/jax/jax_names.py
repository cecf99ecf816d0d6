"""The names of JAX that are used outside of its main module, because JAX changes them without notice."""

from multigpu.private_api.required import Required

JAX = Required(
    library="JAX",
    package="jax",
    lowest="0.6.2",
    newest="0.12.0.1",
    attributes={
        "jax.experimental.multihost_utils": ("broadcast_one_to_all", "process_allgather"),
        "jax.experimental.sparse": ("JAXSparse",),
        "jax.extend.core": ("ClosedJaxpr", "Jaxpr", "JaxprEqn", "jaxpr_as_fun"),
    },
    names_in_code={},
)
