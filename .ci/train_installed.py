"""The installed package trains a small model on four simulated devices, as Keras trains its twin on one."""

import sys

import keras
import numpy as np

import multigpu

assert multigpu.__file__.startswith(sys.prefix), f"{multigpu.__file__} is not in {sys.prefix}"
multigpu.simulate_gpus(4)
keras.config.set_floatx("float64")  # so that sums in another order do not differ by more than 1e-9
x = np.random.default_rng(0).uniform(-1, 1, (250, 3))
y = x[:, :1] * x[:, 1:2] - x[:, 2:]


def trained(parallel: bool) -> tuple[list[float], list[np.ndarray]]:
    """Losses and weights after five epochs, with a last batch that four devices cannot share evenly."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(16, activation="tanh"), keras.layers.Dense(1)])
    fitted = multigpu.multi_gpu_model(model, gpus=4) if parallel else model
    fitted.compile(optimizer=keras.optimizers.Adam(0.01), loss="mse")
    losses = fitted.fit(x, y, batch_size=60, epochs=5, verbose=0).history["loss"]
    return losses, model.get_weights()


(expected, weights), (losses, parallel_weights) = trained(parallel=False), trained(parallel=True)
np.testing.assert_allclose(losses, expected, rtol=1e-9)
for weight, parallel_weight in zip(weights, parallel_weights, strict=True):
    np.testing.assert_allclose(parallel_weight, weight, rtol=1e-9, atol=1e-12)
assert losses[-1] < losses[0] / 2, losses
print(f"multigpu {multigpu.__version__} of {sys.prefix}: loss {losses[0]:.4f} → {losses[-1]:.4f}, as on one device")
