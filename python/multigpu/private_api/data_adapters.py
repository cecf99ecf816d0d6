"""Keras' adapters of data for its loops, which have no public names."""

from keras.src.trainers.data_adapters import ArrayDataAdapter as ArrayDataAdapter
from keras.src.trainers.data_adapters import get_data_adapter as get_data_adapter
from keras.src.trainers.data_adapters.data_adapter import DataAdapter as DataAdapter
