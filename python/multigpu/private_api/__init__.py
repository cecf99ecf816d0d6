"""Every private attribute of Keras that needs no engine, each once, with its reason."""

from multigpu.private_api.keras_names import KERAS

KERAS.check()
