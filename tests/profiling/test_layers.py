"""The layers of an estimate: their work is that of hand and of TensorFlow's profiler, and nothing is run."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from cases import soak
from equality import dense_model
from keras import layers

from multigpu import estimate, multi_gpu_model
from multigpu.profiling import estimate_table


def layers_of(model):
    return estimate(model, 2, optimizer="sgd").layers


def chain(shape, *steps, dtype=None):
    return keras.Sequential([keras.Input(shape, dtype=dtype), *steps])


def test_a_dense_layer_takes_a_product_and_a_bias():
    first, second = layers_of(chain((50,), layers.Dense(30, "relu"), layers.Dense(10, use_bias=False, name="head")))
    assert (first.work, second.work) == (2 * 50 * 30 + 30, 2 * 30 * 10)
    assert (first.weights, second.weights) == (4 * (50 * 30 + 30), 4 * 30 * 10)
    assert (first.output, second.output) == (4 * 30, 4 * 10)
    assert (first.crossing, second.crossing) == (4 * 30, 0)
    assert first.work_share == first.work / (first.work + second.work)
    assert (second.name, second.work_share, second.weights_share) == ("head", 1.0, 1.0)


@pytest.mark.parametrize("groups", [1, 2])  # with groups, Keras compiles the convolution as a function of its own
def test_a_convolution_takes_its_kernel_at_each_point(groups):
    (conv,) = layers_of(chain((9, 8, 4), layers.Conv2D(6, (3, 2), groups=groups)))
    assert conv.work == 7 * 7 * 6 * (2 * 3 * 2 * 4 // groups + 1)


def test_attention_takes_its_products():
    (both,) = layers_of(chain((7, 8), Attending()))
    projections = 3 * (2 * 7 * 8 * 6 + 7 * 6) + (2 * 7 * 6 * 8 + 7 * 8)
    scores = 2 * 7 * 7 * 6  # of all heads together; so many again for the weighted sum
    scaling_and_softmax = (1 + 5) * 2 * 7 * 7
    assert both.work == projections + 2 * scores + scaling_and_softmax


class Attending(layers.Layer):
    """Attention to itself, as a layer of its own with a layer inside."""

    def __init__(self):
        super().__init__()
        self.attention = layers.MultiHeadAttention(num_heads=2, key_dim=3)

    def build(self, shape):
        self.attention.build(shape, shape)

    def call(self, x):
        return self.attention(x, x)


@pytest.mark.parametrize(
    ("kind", "mask_zero"),
    [(layers.LSTM, True), (layers.GRU, False), soak(layers.LSTM, False), soak(layers.GRU, True)],
)
def test_a_loop_takes_as_much_as_its_steps_one_after_the_other(kind, mask_zero):
    def recurrent(unroll):
        embedding = layers.Embedding(9, 3, mask_zero=mask_zero)
        return layers_of(chain((6,), embedding, layers.Bidirectional(kind(4, unroll=unroll)), dtype="int32"))[1]

    loop, steps = recurrent(unroll=False), recurrent(unroll=True)
    assert steps.work > 0
    assert loop.work == steps.work + 2 * 6 * 2  # in each direction, two counters for each step
    assert (loop.weights, loop.output) == (steps.weights, steps.output)


def test_a_shared_layer_has_its_weights_once_and_its_work_each_time():
    encode = layers.Dense(4, name="encode")
    a, b = keras.Input((3,)), keras.Input((3,))
    first, second, both = layers_of(keras.Model([a, b], layers.Concatenate()([encode(a), encode(b)])))
    assert (first.name, second.name) == ("encode", "encode")
    assert (first.weights, second.weights) == (4 * (3 * 4 + 4), 0)
    assert first.work == second.work == 2 * 3 * 4 + 4
    assert (first.crossing, second.crossing, both.crossing) == (4 * 4, 4 * 8, 0)  # the first waits for the second


def residual():
    """Convolutions in a nested model that is called twice, with operations that are in no layer."""
    block = chain((8, 8, 4), layers.Conv2D(4, 3, padding="same"), layers.BatchNormalization(), layers.Dropout(0.1))
    block.name = "block"
    inputs = keras.Input((8, 8, 4))
    x = block(inputs * 2.0) + inputs
    x = block(x) + x
    return keras.Model(inputs, layers.Dense(3, activation="softmax")(layers.GlobalAveragePooling2D()(x)))


def profile_of(model):
    """What TensorFlow's profiler says of the whole forward pass of one row."""
    concrete = tf.function(lambda x: model(x, training=True)).get_concrete_function(
        tf.TensorSpec((1, *model.inputs[0].shape[1:]))
    )
    builder = tf.compat.v1.profiler.ProfileOptionBuilder
    options = builder(builder.float_operation()).with_empty_output().build()
    return tf.compat.v1.profiler.profile(concrete.graph, options=options).total_float_ops


def test_the_sum_is_the_profile_of_the_whole_forward_pass():
    model = residual()
    table = layers_of(model)
    assert sum(row.work for row in table) == profile_of(model)
    assert sum(row.weights for row in table) == estimate(model, 2).weights
    assert table[-1].work_share == table[-1].weights_share == 1


def test_layers_of_a_nested_model_are_listed_in_each_of_its_calls():
    table = layers_of(residual())
    nested = ["block/conv2d", "block/batch_normalization", "block/dropout"]
    assert [row.name for row in table] == [*nested, *nested, "global_average_pooling2d", "dense"]
    assert [row.weights for row in table[3:7]] == [0] * 4


def test_what_goes_around_a_layer_travels_as_well():
    table = layers_of(residual())
    size = 4 * 8 * 8 * 4
    assert [row.output for row in table[:6]] == [size] * 6
    # inputs are where they are needed; behind the first block is its sum, which goes through the second and around it
    assert [row.crossing for row in table[:6]] == [size, size, size, 2 * size, 2 * size, size]


def test_what_is_reshaped_before_a_cut_travels_and_half_precision_takes_half():
    steps = [layers.Dense(5, dtype="mixed_float16"), layers.Flatten(dtype="mixed_float16"), layers.Dense(2)]
    assert [row.crossing for row in layers_of(chain((3, 4), *steps))] == [2 * 15, 4 * 15, 0]


class Halving(layers.Layer):
    """Halves its input as long as it is large."""

    def call(self, x):
        return tf.while_loop(lambda x: tf.reduce_max(x) > 1, lambda x: (x / 2,), (x,))[0]


def test_what_nobody_counts_is_not_known():
    first, second, third = table = layers_of(chain((4,), layers.Dense(3), Halving(), layers.Dense(2)))
    assert (first.work, second.work, third.work) == (2 * 4 * 3 + 3, None, 2 * 3 * 2 + 2)
    assert [row.work_share for row in table] == [None] * 3
    assert str(table).splitlines()[2].split()[4:6] == ["-", "-"]


class Positive(layers.Layer):
    """Products of as many numbers as are positive."""

    def call(self, x):
        positive = tf.boolean_mask(x, x > 0)
        return x * tf.reduce_sum(positive[:, None] * positive)


class Counting(layers.Layer):
    """Adds as many numbers as the largest one says, and does nothing else."""

    def call(self, x):
        return x + tf.reduce_sum(tf.cast(tf.range(tf.cast(tf.reduce_max(x), "int32")), x.dtype))


@pytest.mark.parametrize("layer", [Positive, Counting])
def test_work_on_lengths_that_depend_on_the_data_is_not_known(layer):
    assert layers_of(chain((4,), layer()))[0].work is None


class Counted(layers.Layer):
    """Notes each time that it is run."""

    ran = 0

    def call(self, x):
        def note(x):
            Counted.ran += 1
            return x

        return tf.ensure_shape(tf.numpy_function(note, [x], tf.float32), x.shape)


def test_nothing_is_run_or_changed_and_nothing_traced_before_it_is_asked_for(monkeypatch):
    model = chain((4,), layers.BatchNormalization(), Counted(), layers.Dropout(0.5))
    before = [np.array(variable) for variable in model.variables]
    monkeypatch.setattr(estimate_table, "estimate_layers", lambda template: [template])
    estimated = estimate(model, 2)
    assert "layers" not in vars(estimated)
    assert estimated.layers is estimated.layers
    assert estimated.layers[0] is model
    monkeypatch.undo()
    assert len(layers_of(model)) == 3
    assert Counted.ran == 0
    for variable, value in zip(model.variables, before, strict=True):
        np.testing.assert_array_equal(variable, value)


class OwnWeights(keras.Model):
    """A model with a weight that is in no layer."""

    def __init__(self):
        super().__init__(name="own")
        self.scale = self.add_weight(shape=(7,))
        self.dense = layers.Dense(2, name="dense")

    def call(self, x):
        return self.dense(x * self.scale)


def test_weights_that_are_in_no_layer_come_last():
    inputs = keras.Input((7,))
    dense, rest = layers_of(keras.Model(inputs, OwnWeights()(inputs), name="outer"))
    assert (dense.name, dense.work) == ("own/dense", 7 + 2 * 7 * 2 + 2)
    assert (rest.name, rest.weights, rest.work, rest.output) == ("outer", 4 * 7, 0, 0)


def test_a_model_that_calls_no_layer_is_one_row():
    inputs = keras.Input((7,))
    (row,) = layers_of(keras.Model(inputs, inputs * 2.0, name="twice"))
    assert (row.name, row.work, row.weights) == ("twice", 7, 0)


def test_a_parallel_model_has_the_layers_of_its_template():
    model = dense_model()
    assert layers_of(multi_gpu_model(model, 2)) == layers_of(model)


def test_a_model_without_symbolic_inputs_has_no_list_of_layers():
    model = OwnWeights()
    model(np.ones((1, 7)))
    with pytest.raises(ValueError) as error:  # noqa: PT011  # the whole text is compared
        layers_of(model)
    assert str(error.value) == (
        "Expected a template that knows the shapes of its inputs, so that its layers can be traced. Received: 'own', a "
        "OwnWeights without `inputs`. Use a functional model, or a Sequential with an `Input`."
    )


@pytest.mark.quick
def test_it_prints_as_a_table():
    model = chain((1000,), layers.Dense(1000, name="wide"), layers.Dense(100, name="narrow"))
    assert str(layers_of(model)).splitlines() == [
        " layer  weights  so far  work per row  so far  output per row  cut behind it",
        "  wide  4.00 MB   90.9%    2.00 MFLOP   90.9%       0.0040 MB      0.0040 MB",
        "narrow  0.40 MB  100.0%    0.20 MFLOP  100.0%      0.00040 MB        0.00 MB",
    ]
