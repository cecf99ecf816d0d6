"""Programs are edited where XLA would divide them wrongly, and compute the same."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from equality import random_rows
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from multigpu.engines.jax.program import run, trace

UPDATES = {
    "add": lambda x, at, new: x.at[at].add(new),
    "subtract": lambda x, at, new: x.at[at].subtract(new),
    "set": lambda x, at, new: x.at[at].set(new),
    "multiply": lambda x, at, new: x.at[at].multiply(new),
    "max": lambda x, at, new: x.at[at].max(new),
    "min": lambda x, at, new: x.at[at].min(new),
    "of a number": lambda x, at, new: x.at[at[0]].add(new[0]),
    "of an element": lambda x, at, new: x.at[at[0], 1].set(new[0, 0]),
    "of a slice": lambda x, at, new: x.at[4:5].add(new),
    "of an index beyond the end": lambda x, at, new: x.at[at + 9].add(new),
    "of each of one": lambda x, at, new: jax.vmap(lambda x, new: x.at[at].add(new), in_axes=(1, 1))(x, new).T,
    "in a loop": lambda x, at, new: jax.lax.fori_loop(0, 3, lambda i, x: x.at[at + i - 1].add(new), x),
    "in a branch": lambda x, at, new: jax.lax.cond(at[0] > 1, lambda x: x.at[at].add(new), lambda x: x, x),
    "for a gradient": lambda x, at, new: jax.grad(lambda x: jnp.sum(jnp.tanh(x.at[at].mul(new)) * x[at]))(x),
}


@pytest.mark.parametrize("name", UPDATES)
def test_an_update_at_one_index(name):
    """Of an array that is a sum over devices, and is divided among them."""
    one, other, new = random_rows(9, 6), random_rows(9, 3), random_rows(1, 3)
    mesh = Mesh(np.array(jax.devices()[:3]), ("gpus",))

    def plain(one, other, at, new):
        return UPDATES[name](one.T @ other, at, new)

    def edited(*args):
        program, structure = trace(mesh, plain, *args)
        return run(program, structure, *args)

    divided, copied = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in (["gpus"], []))
    args = one, other, np.array([3], "int32"), new
    placed = [jax.device_put(x, sharding) for x, sharding in zip(args, (divided, divided, copied, copied), strict=True)]
    expected = jax.jit(plain)(*args)
    np.testing.assert_allclose(jax.jit(edited)(*args), expected, rtol=1e-5, atol=1e-6)
    actual = jax.jit(lambda *args: jax.lax.with_sharding_constraint(edited(*args), divided))(*placed)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


def test_two_rows_with_zeros_around_them():
    """They end up on two of eight devices, where XLA loses one of them."""
    rows = random_rows(16, 5)
    mesh = Mesh(np.array(jax.devices()), ("gpus",))
    divided = NamedSharding(mesh, PartitionSpec("gpus"))

    def plain(rows):
        return jnp.pad(jnp.tanh(rows[:2]), ((11, 11), (0, 0)))

    def edited(rows):
        program, structure = trace(mesh, plain, rows)
        return jax.lax.with_sharding_constraint(run(program, structure, rows), divided)

    expected = jax.jit(plain)(rows)
    np.testing.assert_allclose(jax.jit(edited)(jax.device_put(rows, divided)), expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "cummax", "cumlogsumexp"])
def test_sums_of_divided_rows_up_to_each_take_work_in_proportion(name):
    x = random_rows(1024, 2)
    mesh = Mesh(np.array(jax.devices()[:4]), ("gpus",))
    divided = NamedSharding(mesh, PartitionSpec("gpus"))

    def plain(x):
        return getattr(jax.lax, name)(x, axis=0)

    def edited(x):
        program, structure = trace(mesh, plain, x)
        return run(program, structure, x)

    compiled = jax.jit(edited, out_shardings=divided).lower(jax.device_put(x, divided)).compile()
    np.testing.assert_allclose(compiled(jax.device_put(x, divided)), plain(x), rtol=1e-4, atol=1e-4)
    of_one_device = jax.jit(plain).lower(x).compile()
    assert compiled.cost_analysis()["flops"] <= 2 * of_one_device.cost_analysis()["flops"]
