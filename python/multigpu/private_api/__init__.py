"""Every private attribute of Keras that works with all engines, each once, with its reason."""

from multigpu.private_api.keras_names import KERAS

KERAS.check()
