"""Every private attribute of Keras and TensorFlow that is used, each once, with its reason."""

from multigpu.private_api import required

required.check()
