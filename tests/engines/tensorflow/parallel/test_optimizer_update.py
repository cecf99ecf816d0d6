"""An optimizer that a step of the template's own applies has slots of what it updates, beside these weights."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from equality import assert_same, random_rows
from keras import layers, ops

from multigpu import multi_gpu_model

X, Y = random_rows(13, 4), random_rows(13, 2, seed=1)
OPTIMIZERS = {
    "averages": lambda: keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.9),
    "averages taken": lambda: keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.9, ema_overwrite_frequency=2),
    "accumulation": lambda: keras.optimizers.SGD(0.1, momentum=0.9, gradient_accumulation_steps=2),
    "scaled loss": lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.1)),
}


class TwoOptimizers(keras.Model):
    """Trains its first layer with the compiled optimizer, and its second with another one."""

    def __init__(self):
        super().__init__()
        self.first, self.second = layers.Dense(5, activation="relu"), layers.Dense(2)
        self.of_second = keras.optimizers.SGD(0.1)
        self(X)
        self.of_second.build(self.second.trainable_variables)

    def call(self, x):
        return self.second(self.first(x))

    def train_step(self, data):
        x, y = data
        with tf.GradientTape(persistent=True) as tape:
            loss = self.compute_loss(x, y, self(x, training=True))
        for optimizer, layer in ((self.optimizer, self.first), (self.of_second, self.second)):
            weights = layer.trainable_variables
            optimizer.apply(tape.gradient(loss, weights), weights)
        return {"loss": loss}


class Uncertainty(keras.Model):
    """Also trains a number that is not one of its weights."""

    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(2)
        self(X)
        self.__dict__["uncertainty"] = keras.Variable(0.1, name="uncertainty")  # Keras does not track it here

    def call(self, x):
        return self.dense(x)

    def train_step(self, data):
        x, y = data
        weights = [*self.trainable_variables, self.uncertainty]
        with tf.GradientTape() as tape:
            squares = ops.mean((self(x, training=True) - y) ** 2)
            loss = squares * ops.exp(-self.uncertainty) + self.uncertainty
        self.optimizer.apply(tape.gradient(loss, [weight.value for weight in weights]), weights)
        return {"loss": loss, "uncertainty": self.uncertainty}


def trained(kind, optimizer, gpus, rows=13, **compiled):
    keras.utils.set_random_seed(1)
    template = kind()
    model = template if gpus is None else multi_gpu_model(template, gpus=gpus)
    model.compile(optimizer(), "mse", **compiled)
    history = model.fit(X[:rows], Y[:rows], batch_size=5, epochs=2, shuffle=False, verbose=0).history
    return history, template.get_weights(), [np.array(x) for x in template.optimizer.variables]


@pytest.mark.parametrize("eager", [False, True], ids=["graph", "eager"])
@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("kind", [TwoOptimizers, Uncertainty])
def test_an_optimizer_of_other_variables_than_the_models(kind, name, eager):
    actual, expected = (trained(kind, OPTIMIZERS[name], gpus, run_eagerly=eager) for gpus in (3, None))
    assert_same(actual, expected)


def test_slots_are_beside_the_weights_that_are_updated():
    model = multi_gpu_model(TwoOptimizers(), gpus=3)
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mse")
    model.fit(X, Y, batch_size=5, verbose=0)
    slots = model.optimizer.variables[2:]
    assert [slot.value.device for slot in slots] == [w.value.device for w in model.first.trainable_variables]


class ScalesLoss(keras.Model):
    """Scales the loss as Keras' own step does: by a number that the optimizer has from its first update on."""

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x, y, self(x, training=True))
            scaled = self.optimizer.scale_loss(loss)
        self.optimizer.apply(tape.gradient(scaled, self.trainable_weights), self.trainable_weights)
        return {"loss": loss}


class ReadsSlots(keras.Model):
    """Tells how far its optimizer moves, once that has slots."""

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x, y, self(x, training=True))
        moves = ops.sum([ops.sum(ops.abs(slot)) for slot in self.optimizer.variables[2:]] or [0.0])
        self.optimizer.apply(tape.gradient(loss, self.trainable_weights), self.trainable_weights)
        return {"loss": loss, "moves": moves}


@pytest.mark.parametrize("kind", [ScalesLoss, ReadsSlots])
def test_a_step_reads_the_optimizer_that_its_first_trace_builds(kind):
    def functional():
        inputs = keras.Input((4,))
        return kind(inputs, layers.Dense(2)(inputs))

    def optimizer():
        momentum = keras.optimizers.SGD(0.1, momentum=0.9)
        scaled = keras.optimizers.LossScaleOptimizer(momentum, initial_scale=2.0, dynamic_growth_steps=2)
        return scaled if kind is ScalesLoss else momentum

    actual, expected = (trained(functional, optimizer, gpus, rows=10) for gpus in (3, None))
    assert_same(actual, expected)


class Lookahead(keras.optimizers.SGD):
    """Every second update, goes half of the way. Reads its counter after the update."""

    def apply(self, grads, trainable_variables=None):
        before = [variable + 0.0 for variable in trainable_variables]
        super().apply(grads, trainable_variables)
        goes_back = ops.cast(self.iterations % 2 == 0, "float32")
        for variable, old in zip(trainable_variables, before, strict=True):
            variable.assign(variable + 0.5 * goes_back * (old - variable))


class Twice(keras.optimizers.SGD):
    """Makes two updates of one."""

    def apply(self, grads, trainable_variables=None):
        super().apply(grads, trainable_variables)
        super().apply(grads, trainable_variables)


class Decays(keras.optimizers.SGD):
    """Sets its rate before it uses it."""

    def apply(self, grads, trainable_variables=None):
        self.learning_rate.assign(self.learning_rate * 0.5)
        super().apply(grads, trainable_variables)


class CountsItself(keras.optimizers.SGD):
    """Has a number of its own with a name of Keras', which it sets in each update, and reads again."""

    def build(self, variables):
        super().build(variables)
        self.own = self.add_variable((), name="learning_rate")

    def update_step(self, gradient, variable, learning_rate):
        self.own.assign(self.own + 1.0)
        super().update_step(gradient, variable, learning_rate / self.own)


@pytest.mark.parametrize("kind", [Lookahead, Twice, Decays, CountsItself])
def test_an_optimizer_that_reads_its_numbers_after_it_set_them(kind):
    def sequential():
        return keras.Sequential([keras.Input((4,)), layers.Dense(2)])

    actual, expected = (trained(sequential, lambda: kind(0.1, momentum=0.9), gpus) for gpus in (3, None))
    assert_same(actual, expected)


class OwnCompile(keras.Model):
    """Keeps the optimizers that its own `compile()` takes in a dictionary or list, as attribute `optimizer`."""

    def __init__(self, of):
        super().__init__()
        self.first, self.second, self.of = layers.Dense(5, activation="relu"), layers.Dense(2), of
        self(X)

    def call(self, x):
        return self.second(self.first(x))

    def compile(self, of_first, of_second, **kwargs):
        super().compile(**kwargs)
        self.optimizer = {"a": of_first, "b": of_second} if self.of is dict else [of_first, of_second]

    def train_step(self, data):
        x, y = data
        with tf.GradientTape(persistent=True) as tape:
            loss = self.compute_loss(x, y, self(x, training=True))
        optimizers = self.optimizer.values() if self.of is dict else self.optimizer
        for layer, optimizer in zip((self.first, self.second), optimizers, strict=True):
            weights = layer.trainable_variables
            optimizer.apply(tape.gradient(loss, weights), weights)
        return {"loss": loss}


@pytest.mark.parametrize("of", [dict, list])
def test_optimizers_in_a_dictionary_or_list(of):
    def run(gpus):
        keras.utils.set_random_seed(1)
        template = OwnCompile(of)
        model = template if gpus is None else multi_gpu_model(template, gpus=gpus)
        pair = keras.optimizers.SGD(0.1, momentum=0.9), keras.optimizers.SGD(0.05, momentum=0.5)
        model.compile(*pair, loss="mse")
        history = [model.fit(X, Y, batch_size=5, epochs=2, shuffle=False, verbose=0).history]
        if gpus:
            slots, weights = pair[1].variables[2:], template.second.trainable_variables
            assert [slot.value.device for slot in slots] == [weight.value.device for weight in weights]
            model.overview()
        return history, template.get_weights(), [np.array(x) for each in pair for x in each.variables]

    assert_same(run(3), run(None))
