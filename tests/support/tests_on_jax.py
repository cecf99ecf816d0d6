"""What JAX is told before the tests of its engine begin, as a plugin of pytest."""

import jax
import pytest

jax.devices()  # starts them: no test can change their number


@pytest.fixture(scope="module")
def forgotten():
    """JAX keeps the programs of all models, which no test of another file runs again."""
    jax.clear_caches()
