"""Which callbacks a worker has, and which of them may stop the training within an epoch."""

import keras
import pytest

from multigpu.cluster.callbacks import StopTogether, allowed, listed

callbacks = keras.callbacks


class Own(callbacks.Callback):
    pass


@pytest.mark.parametrize(
    "given", [Own(), [Own()], (Own(), None), callbacks.CallbackList([Own()]), None, []], ids=lambda x: type(x).__name__
)
def test_callbacks_come_alone_or_in_any_list(given):
    assert [type(each) for each in listed(given)] == [Own] * bool(given)


def test_the_chief_alone_has_those_that_write_also_those_in_a_list_of_keras():
    given = listed(callbacks.CallbackList([callbacks.CSVLogger("logs.csv"), Own()]))
    assert [type(each) for each in allowed(given, is_chief=False)] == [Own]
    assert allowed(given, is_chief=True) == given


@pytest.mark.parametrize(
    ("callback", "may_stop"),
    [(Own(), True), (callbacks.LambdaCallback(), True), (callbacks.EarlyStopping(), False), (None, False)],
)
def test_those_that_run_code_of_a_user_may_stop_within_an_epoch(callback, may_stop):
    told = []
    StopTogether([callback] if callback else [], lambda here: told.append(here) or here)
    assert told == [may_stop]
