"""Optimizers of every kind, and their clipping, averaging, accumulating and scaling, step as on one device."""

import keras
import pytest
from cases import soak
from equality import assert_same_training
from optimizer_cases import COMMON, OTHERS, rising_model, rising_rows

optimizers = keras.optimizers


def assert_same_steps(optimizer, gpus: int = 3, build=rising_model, **options) -> None:
    """Compares the training with the optimizer that `optimizer()` makes."""

    def compile():
        return {"optimizer": optimizer(), "loss": "mse"}

    x, y = rising_rows()
    assert_same_training(build, x, y, compile=compile, gpus=gpus, only_fit=True, **options)


BY_THEMSELVES = {"LossScaleOptimizer", "MultiOptimizer", "ScheduleFreeAdamW"}  # they have tests of their own


def test_no_optimizer_of_keras_is_left_out():
    kinds = [kind for kind in vars(optimizers).values() if isinstance(kind, type)]
    names = {kind.__name__ for kind in kinds if issubclass(kind, optimizers.Optimizer)} - {"Optimizer"}
    assert names == {name for name, _ in COMMON + OTHERS} | BY_THEMSELVES


@pytest.mark.parametrize(
    ("name", "arguments", "gpus"),
    [(*COMMON[0], 8), (*COMMON[1], 3), soak(*COMMON[0], 3), soak(*COMMON[1], 8)],
)
def test_common_optimizer(name, arguments, gpus):
    assert_same_steps(lambda: getattr(optimizers, name)(**arguments), gpus)


@pytest.mark.parametrize(("name", "arguments"), OTHERS)
def test_optimizer(name, arguments):
    assert_same_steps(lambda: getattr(optimizers, name)(**arguments))


def assert_same_steps_once_built(optimizer) -> None:
    """Compares the training with an optimizer that was built before the first step."""
    templates = []

    def build():
        templates.append(rising_model())
        return templates[-1]

    def compile():
        built = optimizer()
        built.build(templates[-1].trainable_variables)
        return {"optimizer": built, "loss": "mse"}

    x, y = rising_rows()
    assert_same_training(build, x, y, compile=compile, only_fit=True)


def test_schedule_free_optimizer():
    """It copies the weights when it is built. One device loses the copy if that is in the trace of the first step."""
    assert_same_steps_once_built(lambda: optimizers.ScheduleFreeAdamW(0.01))


def test_an_optimizer_for_each_layer():
    def optimizer():
        each = optimizers.OptimizerMap(optimizers.Adam(0.01))
        each[".*dense_1/.*"] = optimizers.SGD(0.05, momentum=0.9)
        return optimizers.MultiOptimizer(each)

    assert_same_steps_once_built(optimizer)


CLIPPING = {"by norm": {"clipnorm": 0.1}, "by value": {"clipvalue": 0.5}, "by global norm": {"global_clipnorm": 0.5}}


@pytest.mark.parametrize(
    ("how", "gpus"),
    [
        *[("by norm", 8), ("by value", 3), ("by global norm", 3)],
        *[soak("by norm", 3), soak("by value", 8), soak("by global norm", 8)],
    ],
)
def test_clipping(how, gpus):
    assert_same_steps(lambda: optimizers.SGD(0.1, **CLIPPING[how]), gpus)


# What follows is done by Keras beside the update, on values that the tests above compare.


def test_moving_average_of_the_weights():
    assert_same_steps(lambda: optimizers.SGD(0.05, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=2))


def test_accumulated_gradients():
    """Six batches make three steps; an accumulated mean is taken over batches, on one device too."""
    assert_same_steps(lambda: optimizers.Adam(0.01, gradient_accumulation_steps=2), epochs=2)


def test_learning_rate_schedule():
    def optimizer():
        return optimizers.SGD(optimizers.schedules.ExponentialDecay(0.1, decay_steps=1, decay_rate=0.5))

    assert_same_steps(optimizer)


@pytest.mark.quick
def test_frozen_weights_get_no_decay():
    def build():
        model = rising_model()
        model.layers[0].trainable = False
        return model

    assert_same_steps(lambda: optimizers.AdamW(0.01, weight_decay=0.1), build=build)


# Mixed precision ------------------------------------------------------------------------------------------------------

# A float16 has 11 bits. One device sums a gradient over all rows of a batch and rounds it once to float16; replicas
# round the sums over their own rows, so that gradients, and outputs in float16, agree to about 2 ** -10. A step adds a
# tenth of a gradient to a weight at most.
FLOAT16 = {"rtol": 2e-3, "atol": 2e-4}


def mixed_model(**options) -> keras.Model:
    """Computes in float16 and keeps its weights in float32."""
    keras.config.set_dtype_policy("mixed_float16")
    try:
        return rising_model(**options)
    finally:
        keras.config.set_dtype_policy("float32")


@pytest.mark.parametrize(("output_dtype", "gpus"), [("float32", 3), soak("float32", 8), (None, 3)])
def test_mixed_precision(output_dtype, gpus):
    def build():
        return mixed_model(output_dtype=output_dtype)

    def compile():
        return {"optimizer": optimizers.SGD(0.05, momentum=0.9), "loss": "mse", "metrics": ["mae"]}

    # Targets are near, so that no gradient overflows: the loss scale starts at 2 ** 15.
    template = assert_same_training(build, *rising_rows(1.5), compile=compile, gpus=gpus, tolerance=FLOAT16)
    assert isinstance(template.optimizer, optimizers.LossScaleOptimizer)  # Keras wraps it for such a policy
    assert int(template.optimizer.iterations.numpy()) == 3


@pytest.mark.parametrize("gpus", [3, soak(8)])
def test_loss_scale_falls_on_overflow_and_grows_again(gpus):
    def build():
        return mixed_model(use_bias=False, output_dtype="float32")

    def compile():
        scaled = optimizers.LossScaleOptimizer(optimizers.SGD(0.05), initial_scale=2.0**18, dynamic_growth_steps=2)
        return {"optimizer": scaled, "loss": "mse"}

    # Inputs are small and there is no bias: what overflows is the gradient of single rows, which a split leaves as it
    # is, and not a sum over rows, which overflows later where it is taken in parts.
    x, y = rising_rows()
    template = assert_same_training(build, 0.1 * x, y, compile=compile, gpus=gpus, epochs=2, tolerance=FLOAT16)
    assert 2 <= int(template.optimizer.iterations.numpy()) < 6  # at least once doubled, at least once skipped
