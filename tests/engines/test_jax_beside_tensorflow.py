"""Workers on JAX take the datasets of TensorFlow, where both are installed."""

import numpy as np
from started_workers import ended, one, started, values


def test_workers_on_jax_train_on_tensorflow_datasets_as_one_process_does(tmp_path):
    """One dataset has rows of each worker's own, in any number; another is the same on all."""
    for code, printed in ended([one(tmp_path, "tf.data", 2), *started("TF_CONFIG", tmp_path, "tf.data", 2)]):
        assert code == 0, printed
    for worker in range(2):
        for actual, expected in zip(values(tmp_path, worker), values(tmp_path, "one"), strict=True):
            np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)
