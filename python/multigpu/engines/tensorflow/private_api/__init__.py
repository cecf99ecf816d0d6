"""Every private attribute of TensorFlow that is used, and those of Keras on TensorFlow, each once, with its reason."""

import multigpu.private_api  # noqa: F401 (a Keras without these names raises its error first)
from multigpu.engines.tensorflow.private_api.tensorflow_names import TENSORFLOW

TENSORFLOW.check()
