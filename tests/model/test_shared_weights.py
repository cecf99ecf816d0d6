"""The template's variables are the only copy: whoever looks at them, at any time, sees the trained ones."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from cases import soak
from equality import assert_same, assert_same_weights, dense_data, dense_net, make_twins
from keras import layers, ops

from multigpu import multi_gpu_model

X, Y = dense_data()

# Numbers on 3 and 8 devices are compared in test_exact_batches.py. Here, where models are looked at, frozen and
# nested between calls, training meets 3 and 8, and the rest 3: slices of 3, 3 and 2 rows, and a device without a row of
# the last batch.
every_count = pytest.mark.parametrize("gpus", [soak(3), 8])
uneven_counts = pytest.mark.parametrize("gpus", [3])


def net():
    return dense_net(metrics=[])


def fit(model, epochs=2, **kwargs):
    return model.fit(X, Y, batch_size=8, epochs=epochs, shuffle=False, verbose=0, **kwargs).history


class Recorder(keras.callbacks.Callback):
    """Keeps the weights of one model after every batch of whichever model is trained."""

    def __init__(self, watched):
        super().__init__()
        self.watched, self.seen = watched, []

    def on_train_batch_end(self, batch, logs=None):
        self.seen.append(self.watched.get_weights())


# One copy of the weights --------------------------------------------------------------------------------------------


@every_count
def test_after_fit_the_template_has_the_trained_weights(gpus):
    one, parallel = make_twins(net, gpus)
    fit(one)
    fit(parallel)
    assert_same_weights(parallel.template, one)


@pytest.mark.quick
@uneven_counts
def test_inside_a_callback_the_template_has_the_trained_weights(gpus):
    one, parallel = make_twins(net, gpus)
    recorders = [Recorder(one), Recorder(parallel.template)]
    fit(one, callbacks=[recorders[0]])
    fit(parallel, callbacks=[recorders[1]])
    assert len(recorders[1].seen) == 6
    assert_same(recorders[1].seen, recorders[0].seen)


@uneven_counts
def test_weights_set_inside_a_callback_are_those_of_the_next_batch(gpus):
    class Reset(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.model.set_weights([0.9 * weight for weight in self.model.get_weights()])

    one, parallel = make_twins(net, gpus)
    assert_same(fit(parallel, callbacks=[Reset()]), fit(one, callbacks=[Reset()]))
    assert_same_weights(parallel.template, one)


@uneven_counts
def test_early_stopping_restores_the_best_weights_of_the_template(gpus):
    def stop():
        return keras.callbacks.EarlyStopping("loss", mode="max", patience=2, restore_best_weights=True)

    one, parallel = make_twins(net, gpus)
    assert_same(fit(parallel, 9, callbacks=[stop()]), fit(one, 9, callbacks=[stop()]))
    assert_same_weights(parallel.template, one)


@uneven_counts
def test_a_learning_rate_set_in_a_callback_is_honoured(gpus):
    def schedule():
        return keras.callbacks.LearningRateScheduler(lambda epoch: 0.1 / (epoch + 1))

    one, parallel = make_twins(net, gpus)
    fit(one, callbacks=[schedule()])
    fit(parallel, callbacks=[schedule()])
    assert_same_weights(parallel.template, one)


def test_the_optimizer_is_one_object():
    _, parallel = make_twins(net)
    assert parallel.optimizer is parallel.template.optimizer
    parallel.compile("sgd", "mse")
    assert parallel.optimizer is parallel.template.optimizer
    assert parallel.template.compiled


@uneven_counts
def test_training_goes_on_on_one_device_and_back_again(gpus):
    one, parallel = make_twins(net, gpus)
    for model in (parallel, parallel.template, parallel):
        assert_same(fit(model), fit(one))
        assert int(parallel.optimizer.iterations) == int(one.optimizer.iterations)
    assert_same_weights(parallel.template, one)


@uneven_counts
def test_two_parallel_models_of_one_template_train_the_same_weights(gpus):
    one, parallel = make_twins(net, gpus)
    other = multi_gpu_model(parallel.template, gpus=[5, 6, 7])
    for model in (parallel, other):
        assert_same(fit(model), fit(one))
    assert_same_weights(parallel.template, one)


# Freezing -----------------------------------------------------------------------------------------------------------


def compiled(model):
    model.compile(keras.optimizers.AdamW(0.05, weight_decay=0.1), "sparse_categorical_crossentropy")
    return model


@uneven_counts
def test_layers_frozen_before_compile_stay_as_they_are(gpus):
    one, parallel = make_twins(net, gpus)
    before = one.layers[0].get_weights()
    for model in (one, parallel):
        model.layers[0].trainable = False
        fit(compiled(model))
    assert_same_weights(parallel.template, one)
    assert_same(parallel.layers[0].get_weights(), before)


@uneven_counts
@pytest.mark.parametrize("through", [lambda p: p, lambda p: p.template], ids=["parallel", "template"])
def test_layers_frozen_after_a_first_fit_stay_as_they_are(through, gpus):
    one, parallel = make_twins(net, gpus)
    fit(one)
    fit(parallel)
    before = one.layers[0].get_weights()
    one.layers[0].trainable = False
    through(parallel).layers[0].trainable = False
    for model in (one, parallel):
        fit(compiled(model))
    assert_same_weights(parallel.template, one)
    assert_same(parallel.layers[0].get_weights(), before)


@uneven_counts
def test_layers_thawed_after_a_first_fit_are_trained(gpus):
    one, parallel = make_twins(net, gpus)
    for model in (one, parallel):
        model.layers[0].trainable = False
        fit(compiled(model))
        model.layers[0].trainable = True
        fit(compiled(model))
    assert_same_weights(parallel.template, one)


def test_a_model_frozen_as_a_whole_has_nothing_to_train():
    _, parallel = make_twins(net)
    parallel.trainable = False
    assert parallel.trainable_weights == parallel.template.trainable_weights == []
    parallel.trainable = True
    assert len(parallel.trainable_weights) == 4


# Models that share layers -------------------------------------------------------------------------------------------

NOISE = np.random.default_rng(1).normal(size=(7, 2)).astype("float32")


def generator():
    return keras.Sequential([keras.Input((2,)), layers.Dense(6, activation="tanh"), layers.Dense(5)], name="generator")


def critic():
    return keras.Sequential([keras.Input((5,)), layers.Dense(6, activation="tanh"), layers.Dense(1)], name="critic")


def make_gan(spread):
    """Generator, discriminator and the two of them in a row, as in the classic script; `spread` makes one parallel."""
    make, judge = generator(), critic()
    discriminator = spread(judge)
    discriminator.compile(keras.optimizers.Adam(0.05), keras.losses.BinaryCrossentropy(from_logits=True))
    judge.trainable = False
    z = keras.Input((2,))
    gan = spread(keras.Model(z, judge(make(z))))
    gan.compile(keras.optimizers.Adam(0.05), keras.losses.BinaryCrossentropy(from_logits=True))
    judge.trainable = True
    return make, discriminator, gan


def train_gan(make, discriminator, gan, steps=4):
    """Losses of both, trained by turns."""
    real, losses = X[:7], []
    labels = np.concatenate([np.ones((7, 1)), np.zeros((7, 1))])
    for _ in range(steps):
        fake = make.predict_on_batch(NOISE)
        discriminator.trainable = True
        losses.append(discriminator.train_on_batch(np.concatenate([real, fake]), labels))
        discriminator.trainable = False
        losses.append(gan.train_on_batch(NOISE, np.ones((7, 1))))
    return losses


@uneven_counts
def test_two_parallel_models_that_share_layers_train_as_a_gan_on_one_device(gpus):
    one = make_gan(lambda model: model)
    spread = make_gan(lambda model: multi_gpu_model(model, gpus=gpus))
    spread[2].set_weights(one[2].get_weights())
    assert_same(train_gan(*spread), train_gan(*one))
    assert_same_weights(spread[0], one[0])
    assert_same_weights(spread[1], one[1])


@uneven_counts
def test_a_parallel_model_is_a_layer_of_a_functional_model(gpus):
    one, template = critic(), critic()
    template.set_weights(one.get_weights())
    x = keras.Input((5,))
    outer = keras.Model(x, ops.sigmoid(multi_gpu_model(template, gpus=gpus)(x)))
    outer.compile(keras.optimizers.SGD(0.1), "mse")
    x = keras.Input((5,))
    plain = keras.Model(x, ops.sigmoid(one(x)))
    plain.compile(keras.optimizers.SGD(0.1), "mse")
    assert_same(fit(outer), fit(plain))
    assert_same_weights(template, one)


@uneven_counts
def test_a_parallel_model_is_a_part_of_a_subclassed_model(gpus):
    class Outer(keras.Model):
        def __init__(self, part):
            super().__init__()
            self.part, self.top = part, layers.Dense(1, kernel_initializer="ones")

        def call(self, x):
            return self.top(self.part(x))

    one, template = critic(), critic()
    template.set_weights(one.get_weights())
    outers = [Outer(one), Outer(multi_gpu_model(template, gpus=gpus))]
    histories = []
    for outer in outers:
        outer.compile(keras.optimizers.SGD(0.1), "mse")
        histories.append(fit(outer))
    assert_same(*histories)
    assert_same_weights(outers[1], outers[0])


# Gradients other than those of the weights ----------------------------------------------------------------------------


def gradient_of_input(model, x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = ops.sum(model(x, training=True) ** 2)
    return tape.gradient(y, x)


@pytest.mark.parametrize(
    ("eager", "num_rows", "gpus"),
    [(False, 7, 3), (True, 7, 3), (False, 1, 3), soak(True, 1, 3), soak(False, 7, 8), soak(True, 7, 8)],
)
def test_gradients_flow_to_the_inputs(eager, num_rows, gpus):
    x = tf.constant(X[:num_rows])
    asked = [lambda x, m=model: gradient_of_input(m, x) for model in make_twins(critic, gpus)]
    assert_same(*(ask(x) if eager else tf.function(ask)(x) for ask in asked))


def penalty_step(model, x):
    """Loss and gradients of the weights for a critic with a gradient penalty: a gradient of a gradient."""
    with tf.GradientTape() as outer:
        slope = ops.sqrt(ops.sum(gradient_of_input(model, x) ** 2, axis=-1) + 1e-12)
        loss = ops.mean(model(x, training=True)) + 10.0 * ops.mean((slope - 1.0) ** 2)
    weights = [weight.value for weight in model.trainable_variables]
    return loss, outer.gradient(loss, weights, unconnected_gradients="zero")


@pytest.mark.parametrize(
    ("eager", "num_rows", "gpus"),  # each pair of two of the three, with those of `make soak`
    [(False, 7, 3), (True, 2, 3), (False, 1, 8), soak(True, 7, 8), soak(False, 2, 3), soak(True, 1, 8)],
)
def test_a_gradient_penalty_equals_that_of_one_device(eager, num_rows, gpus):
    x = tf.constant(X[:num_rows])
    steps = [lambda x, m=model: penalty_step(m, x) for model in make_twins(critic, gpus)]
    assert_same(*(step(x) if eager else tf.function(step)(x) for step in steps))


class Wgan(keras.Model):
    """The usual WGAN-GP: one model with two parts and a train step of its own that calls them."""

    def __init__(self, critic, generator):
        super().__init__()
        self.critic, self.generator = critic, generator

    def compile(self):
        super().compile()
        self.critic_optimizer = keras.optimizers.RMSprop(0.01)
        self.generator_optimizer = keras.optimizers.RMSprop(0.01)

    def train_step(self, real):
        noise = ops.ones((ops.shape(real)[0], 2))
        with tf.GradientTape() as tape:
            fake = self.generator(noise, training=True)
            slope = gradient_of_input(self.critic, 0.5 * (real + fake))
            penalty = ops.mean((ops.sqrt(ops.sum(slope**2, axis=-1)) - 1.0) ** 2)
            c_loss = ops.mean(self.critic(fake)) - ops.mean(self.critic(real)) + 10.0 * penalty
        self.step(tape, c_loss, self.critic, self.critic_optimizer)
        with tf.GradientTape() as tape:
            g_loss = -ops.mean(self.critic(self.generator(noise, training=True)))
        self.step(tape, g_loss, self.generator, self.generator_optimizer)
        return {"c_loss": c_loss, "g_loss": g_loss}

    @staticmethod
    def step(tape, loss, part, optimizer):
        optimizer.apply(tape.gradient(loss, part.trainable_variables), part.trainable_variables)


@pytest.mark.parametrize("gpus", [3])  # it takes longer than any other, and its parts meet 8 devices above
def test_parallel_parts_of_a_wgan_with_gradient_penalty_train_as_on_one_device(gpus):
    critics, generators = make_twins(critic, gpus), make_twins(generator, gpus)
    histories = []
    for parts in zip(critics, generators, strict=True):
        model = Wgan(*parts)
        model.compile()
        histories.append(model.fit(X, batch_size=8, epochs=2, shuffle=False, verbose=0).history)
    assert_same(*histories)
    assert_same_weights(*critics)
    assert_same_weights(*generators)
