"""What workers compare of a model."""

import keras
import pytest

from multigpu.private_api.model_settings import settings


class Schedule(keras.optimizers.schedules.LearningRateSchedule):
    """A schedule of a user's, whose configuration was never asked for."""

    def __init__(self, error):
        self.error = error

    def __call__(self, step):
        return 0.1

    def get_config(self):
        raise self.error


@pytest.mark.parametrize("error", [NotImplementedError(), AttributeError("no rate"), RuntimeError("broken")])
def test_code_of_a_user_that_cannot_tell_its_configuration_counts_by_its_class(error):
    assert settings({"schedule": Schedule(error), "of": [1, None]}) == {"schedule": "Schedule", "of": [1, None]}


def test_rates_seeds_and_names_may_differ():
    layer = keras.layers.Dropout(0.5, seed=3, name="one")
    assert settings(layer) == settings(keras.layers.Dropout(0.5, seed=4, name="two"))
    assert settings(layer) != settings(keras.layers.Dropout(0.4, seed=3, name="one"))
    assert settings({"learning_rate": 0.1}) == settings({"learning_rate": 0.2})
