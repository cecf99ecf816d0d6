"""Weights of small models are divided among the devices, too, where large ones are."""

import pytest
from equality import ON_JAX


@pytest.fixture(autouse=True)
def divided(monkeypatch):
    if ON_JAX:
        monkeypatch.setattr("multigpu.engines.jax.layout.SMALLEST", 2)
