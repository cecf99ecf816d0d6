"""Random programs over the rows of a batch have the numbers of one device: their results and their gradients.

`make soak` runs them. Each of the faults that they found in XLA's partitioner is a test in `test_exact.py`.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from equality import random_rows
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from multigpu.engines.jax.program import run, trace

LAST = ("NWC", "WIO", "NWC")  # of numbers in a convolution: features
LARGEST = 2500  # elements of a result that the next move gets


def some(random, x):
    """Numbers of rows, in any order, some of them twice."""
    return random.integers(0, len(x), random.integers(1, len(x) + 3))


def first(random, x):
    return random.integers(0, len(x))


def reshaped(random, x):
    rows = random.choice([rows for rows in range(1, x.size + 1) if x.size % rows == 0])
    return x.reshape(rows, -1)


def padded(random, x):
    return jnp.pad(x, (tuple(random.integers(0, 3, 2)), (0, 0)), mode=random.choice(["constant", "edge", "wrap"]))


def convolved(random, x):
    """Windows along the rows, perhaps with steps or gaps in the kernel or between the rows."""
    kernel = random.normal(size=(random.integers(1, 4), x.shape[1], x.shape[1])).astype("float32")
    steps = {name: (int(random.integers(1, 3)),) for name in ("window_strides", "lhs_dilation", "rhs_dilation")}
    padding = random.choice(["SAME", "VALID"]) if steps["lhs_dilation"] == (1,) else [(1, 2)]
    return lax.conv_general_dilated(x[None], kernel, padding=padding, dimension_numbers=LAST, **steps)[0] / 2


def convolved_in_groups(random, x):
    """Windows along the features of each row, whose numbers are channels in groups."""
    groups = random.choice([groups for groups in range(1, x.shape[1] + 1) if x.shape[1] % groups == 0])
    kernel = random.normal(size=(2, x.shape[1] // groups, 2 * groups)).astype("float32")
    images = jnp.stack([x, 2 * x, jnp.roll(x, 1, 0)], 1)
    of_groups = lax.conv_general_dilated(
        images, kernel, (1,), "SAME", dimension_numbers=LAST, feature_group_count=int(groups)
    )
    return of_groups.mean(1)


def rows_as_channels(random, x):
    kernel = random.normal(size=(2, len(x), len(x) + 1)).astype("float32")
    return lax.conv_general_dilated(x.T[None], kernel, (1,), "SAME", dimension_numbers=LAST)[0].T / 3


def added_in_a_loop(random, x):
    numbers = jnp.array(some(random, x))
    return lax.fori_loop(0, len(numbers), lambda i, x: x.at[numbers[i]].add(jnp.sin(x[-i]) / 2), x)


def replaced_in_a_loop(random, x):
    def turn(i, x):
        return lax.dynamic_update_slice_in_dim(x, jnp.cos(lax.dynamic_slice_in_dim(x, i, 1)), i // 2, 0)

    return lax.fori_loop(0, random.integers(1, len(x) + 1), turn, x)


def orthogonal(random, x):
    """An orthogonal base of the rows, or of the features: with more of the first, so that it is unique."""
    tall = x if x.shape[0] >= x.shape[1] else x.T
    return jnp.linalg.qr(tall + 3 * jnp.eye(*tall.shape))[0]


def attended(random, x):
    alike = jnp.where(random.random() < 0.5 or jnp.tri(len(x), dtype=bool), x @ x.T, -1e9)
    return jax.nn.softmax(0.3 * alike) @ x


def running(one, other):
    return one[0] * other[0], other[0] * one[1] + other[1]


MOVES = {
    "rows at steps": lambda random, x: x[first(random, x) :: random.integers(1, 4)],
    "the first rows": lambda random, x: x[: first(random, x) + 1],
    "the last rows": lambda random, x: x[first(random, x) :],
    "rows by number": lambda random, x: x[some(random, x)],
    "added to rows": lambda random, x: x.at[some(random, x)].add(x[:1] / 2),
    "a row that is set": lambda random, x: x.at[first(random, x)].set(x.mean(0)),
    "the largest of rows": lambda random, x: x.at[some(random, x)].max(x[:1] / 3),
    "a row by its values": lambda random, x: lax.dynamic_slice_in_dim(x, jnp.argmax(x[:, 0]), first(random, x) + 1),
    "a row set by its values": lambda random, x: lax.dynamic_update_slice_in_dim(x, x[:1], jnp.argmax(x[:, 0]), 0),
    "backwards": lambda random, x: x[::-1],
    "rolled": lambda random, x: jnp.roll(x, random.integers(-3, 4), random.integers(2)),
    "padded": padded,
    "repeated": lambda random, x: jnp.repeat(x, random.integers(1, 4), 0),
    "tiled": lambda random, x: jnp.tile(x, (random.integers(1, 3), 1)),
    "joined": lambda random, x: jnp.concatenate([x[::-1], x / 2], random.integers(2)),
    "windows": lambda random, x: jnp.stack([x[i : i + 2] for i in range(max(len(x) - 1, 1))]).reshape(-1, x.shape[1]),
    "in turns": lambda random, x: jnp.stack([x, jnp.roll(x, 1, 0)], 1).reshape(-1, x.shape[1]),
    "transposed": lambda random, x: x.T,
    "reshaped": reshaped,
    "sorted": lambda random, x: jnp.sort(x, random.integers(2)),
    "ordered": lambda random, x: x[jnp.argsort(x[:, 0])],
    "the largest": lambda random, x: lax.top_k(x.T, first(random, x) + 1)[0].T,
    "running sums": lambda random, x: lax.cumsum(x, random.integers(2), reverse=random.random() < 0.5) / 3,
    "running maxima": lambda random, x: lax.cummax(x, 0),
    "running, as a tree": lambda random, x: lax.associative_scan(running, (jax.nn.sigmoid(x), x))[1],
    "running, in a loop": lambda random, x: lax.scan(lambda c, r: (jnp.tanh(c / 2 + r),) * 2, 0 * x[0], x)[1],
    "differences": lambda random, x: jnp.diff(x, axis=0) if len(x) > 1 else x,
    "sums by numbers": lambda random, x: jax.ops.segment_sum(x, random.integers(0, 3, len(x)), 3),
    "centered": lambda random, x: x - x.mean(0),
    "beside the maximum": lambda random, x: x - 0.3 * x.max(0),
    "attention": attended,
    "nearest": lambda random, x: x[lax.top_k(-((x[:, None] - x) ** 2).sum(-1), min(3, len(x)))[1]].mean(1),
    "convolved": convolved,
    "convolved in groups": convolved_in_groups,
    "rows as channels": rows_as_channels,
    "added in a loop": added_in_a_loop,
    "replaced in a loop": replaced_in_a_loop,
    "orthogonal": orthogonal,
    "masked": lambda random, x: jnp.where(random.random(x.shape) < 0.5, x, x.mean(0)),
    "weights of rows": lambda random, x: jax.nn.softmax(x, 0) * x.sum(0),
    "running, of exponentials": lambda random, x: lax.cumlogsumexp(x, 0) / 2,
    "of the same kind": lambda random, x: x * jax.ops.segment_max(x, jnp.arange(len(x)) % 2, 2)[jnp.arange(len(x)) % 2],
    "the largest by bits": lambda random, x: x * (1 + jnp.bitwise_or.reduce((x > 1).astype("int32"), axis=0)),
    "in half of the digits": lambda random, x: x.astype("bfloat16")[::-1].astype("float32"),
    "one at a time": lambda random, x: lax.map(lambda row: jnp.sin(row) * row[::-1], x),
    "between rows": lambda random, x: jnp.tanh(x[:, None] - x[None, ::-1] / 2).mean(1),
    "pooled": lambda random, x: lax.reduce_window(x, -jnp.inf, lax.max, (2, 1), (random.integers(1, 3), 1), "SAME"),
    "resized": lambda random, x: jax.image.resize(x, (2 * first(random, x) + 1, x.shape[1]), "linear"),
    "each by itself": lambda random, x: jax.vmap(jax.grad(lambda row: jnp.sum(jnp.sin(row) * row[::-1])))(x),
    "one of two": lambda random, x: lax.cond(x.sum() > 0, lambda x: x[::-1], lambda x: jnp.roll(x, 1, 0), x),
    "products": lambda random, x: jax.checkpoint(lambda x: jnp.tanh(x) @ x.T @ x)(x) / 10,
    "Fourier": lambda random, x: jnp.fft.fft(x, axis=0).real / 3,
}


UNDIVIDED = ("sorted", "ordered", "the largest", "nearest", "Fourier")  # in a loop of one's own: see docs/engines.md


def drawn_program(seed, rows, names):
    """A function of a weight and of rows, the number that is differentiated, and arguments."""
    random = np.random.default_rng(seed)
    rows, width = rows(random), random.integers(1, 7)
    moves = [(MOVES[name], random.integers(2**32)) for name in random.choice(names, random.integers(1, 5))]

    def results(weight, x):
        x = x @ weight
        for move, of_move in moves:
            moved = move(np.random.default_rng(of_move), x)
            x = moved if 0 < moved.size <= LARGEST else x
        return x

    arguments = random_rows(width, width, seed=seed), random_rows(rows, width, seed=seed + 1)
    return results, arguments


def with_gradients(results):
    """A function that gives results, and gradients of both arguments."""

    def size(weight, x):
        y = results(weight, x)
        return jnp.sum(jnp.sin(y) * jnp.arange(1, y.size + 1).reshape(y.shape)) / y.size

    return lambda *given: (results(*given), *jax.grad(size, (0, 1))(*given))


def assert_same(function, divided, weight, x):
    expected, other_digits = (jax.jit(function)(each, x) for each in (weight, weight * (1 + 1e-6)))
    assert distance(jax.jit(divided)(weight, x), expected) <= max(1e-3, 20 * distance(other_digits, expected))


def distance(some, others):
    """Differences, relative to the largest number of each array."""
    return max(float(np.abs(a - b).max() / (1e-3 + np.abs(b).max())) for a, b in zip(some, others, strict=True))


@pytest.mark.soak
@pytest.mark.parametrize("devices", [3, 4, 8])
@pytest.mark.parametrize("seed", range(200))
def test_a_random_program(seed, devices):
    results, (weight, x) = drawn_program(seed, lambda random: random.integers(1, 24), list(MOVES))
    mesh = Mesh(np.array(jax.devices()[:devices]), ("gpus",))
    program, structure = trace(mesh, with_gradients(results), weight, x)

    def divided(weight, x):
        whole_parts = jnp.pad(x, ((0, -len(x) % devices), (0, 0)))
        rows = lax.with_sharding_constraint(whole_parts, NamedSharding(mesh, PartitionSpec("gpus")))
        return run(program, structure, weight, rows[: len(x)])

    assert_same(with_gradients(results), divided, weight, x)


@pytest.mark.soak
@pytest.mark.parametrize("devices", [3, 4, 8])
@pytest.mark.parametrize("seed", range(200, 300))
def test_a_random_program_that_is_differentiated_later(seed, devices):
    names = [name for name in MOVES if name not in UNDIVIDED]
    results, (weight, x) = drawn_program(seed, lambda random: devices * random.integers(1, 5), names)
    mesh = Mesh(np.array(jax.devices()[:devices]), ("gpus",))
    program, structure = trace(mesh, results, weight, x, has_gradients=False)

    def divided(weight, x):
        rows = lax.with_sharding_constraint(x, NamedSharding(mesh, PartitionSpec("gpus")))
        return run(program, structure, weight, rows)

    assert_same(with_gradients(results), with_gradients(divided), weight, x)
