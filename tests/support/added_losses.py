"""Layers that add losses, and models with such layers in every place."""

import keras
from keras import ops


class Adds(keras.layers.Layer):
    """Adds a loss of its inputs, and of a weight of its own; or of its inputs and their mask."""

    supports_masking = True

    def __init__(self, loss):
        super().__init__()
        self.loss = loss
        self.supports_masking = True

    def build(self, shape):
        self.scale = self.add_weight(shape=(shape[-1],), initializer="ones")

    def call(self, x, mask=None):
        second = self.scale if mask is None else ops.expand_dims(ops.cast(mask, x.dtype), -1)
        self.add_loss(self.loss(x * self.scale, second))
        return x * self.scale


def sum_of_squares(x, _):
    return 0.01 * ops.sum(ops.square(x))


def spread_of_rows(x, _):
    return ops.mean(ops.square(x - ops.mean(x, axis=0)))


def masked_mean(x, mask):
    return ops.sum(ops.square(x) * mask) / ops.sum(mask)


def behind_synchronized_statistics():
    inputs = keras.Input((3,))
    x = keras.layers.BatchNormalization(synchronized=True)(keras.layers.Dense(4, activation="silu")(inputs))
    return keras.Model(inputs, keras.layers.Dense(2)(Adds(spread_of_rows)(Adds(sum_of_squares)(x))))


def behind_masks():
    inputs = keras.Input((6,), dtype="int32")
    x = keras.layers.Embedding(9, 4, mask_zero=True)(inputs)
    x = Adds(masked_mean)(x)
    pooled = Adds(sum_of_squares)(keras.layers.GlobalAveragePooling1D()(x))
    x = Adds(sum_of_squares)(keras.layers.SimpleRNN(3)(x))
    return keras.Model(inputs, keras.layers.Dense(2)(keras.layers.Concatenate()([x, pooled])))


def behind_a_large_table():
    inputs = keras.Input((6,), dtype="int32")
    x = Adds(sum_of_squares)(keras.layers.Embedding(70_000, 4)(inputs))  # 1.1 MB: only rows of it travel
    return keras.Model(inputs, keras.layers.Dense(2)(keras.layers.Flatten()(x)))


def in_a_shared_layer():
    left, right = keras.Input((3,)), keras.Input((3,))
    dense, adds = keras.layers.Dense(4), Adds(spread_of_rows)
    return keras.Model([left, right], keras.layers.Dense(2)(keras.layers.add([adds(dense(left)), adds(dense(right))])))


class Distance(keras.layers.Layer):
    """A layer without rows in what it gives."""

    def call(self, x, other):
        return ops.mean(ops.square(x - other))


class AddsADistance(keras.layers.Layer):
    """Adds what an inner layer gives."""

    def __init__(self):
        super().__init__()
        self.distance = Distance()
        self.dense = keras.layers.Dense(3, activation="tanh")

    def build(self, shape):
        self.dense.build(shape)

    def call(self, x):
        y = self.dense(x)
        self.add_loss(ops.sqrt(self.distance(y, x)))
        return y


class AddsAndGivesIt(keras.layers.Layer):
    """Gives the loss that it adds, as an endpoint layer may."""

    def call(self, x):
        loss = ops.logsumexp(ops.sum(x, axis=0))
        self.add_loss(loss)
        return x, loss


def of_inner_layers_without_rows():
    inputs = keras.Input((3,))
    x, _ = AddsAndGivesIt()(AddsADistance()(inputs))
    return keras.Model(inputs, keras.layers.Dense(2)(x))


def of_activity_regularizers():
    inputs = keras.Input((3,))
    x = keras.layers.Dense(4, activity_regularizer=lambda x: ops.mean(ops.square(x)))(inputs)
    x = keras.layers.ActivityRegularization(l1=0.01)(x)
    return keras.Model(inputs, keras.layers.Dense(2, activity_regularizer="l2")(x))


class CallsInABranch(keras.layers.Layer):
    """Calls an inner layer in a branch, and adds a loss of what that gives."""

    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(3, activation="tanh")

    def build(self, shape):
        self.dense.build(shape)

    def call(self, x):
        x = ops.cond(ops.any(x > 100), lambda: x, lambda: self.dense(x))
        self.add_loss(spread_of_rows(x, None))
        return x


def in_a_branch():
    inputs = keras.Input((3,))
    return keras.Model(inputs, keras.layers.Dense(2)(CallsInABranch()(inputs)))


class AddsInItsOwnCall(keras.Model):
    """Adds a loss, and keeps a sum and a count, where it is the model itself that does."""

    def __init__(self):
        super().__init__()
        self.hidden, self.head = keras.layers.Dense(4, activation="tanh"), keras.layers.Dense(2)
        self.scale = self.add_weight(shape=(4,), initializer="ones")
        self.total = self.add_weight(shape=(), initializer="zeros", trainable=False)
        self.rows = self.add_weight(shape=(), dtype="int32", initializer="zeros", trainable=False)

    def build(self, shape):
        self.hidden.build(shape)
        self.head.build((None, 4))
        self.built = True

    def call(self, x):
        hidden = self.hidden(x) * self.scale
        self.add_loss(sum_of_squares(hidden, None))
        self.add_loss(spread_of_rows(hidden, None))
        self.total.assign_add(ops.sum(ops.square(hidden)))
        self.rows.assign_add(ops.shape(x)[0])
        return self.head(hidden)


def in_the_template():
    model = AddsInItsOwnCall()
    model.build((None, 3))
    return model


def in_a_model_inside():
    inputs = keras.Input((3,))
    return keras.Model(inputs, keras.layers.Dense(2)(in_the_template()(keras.layers.Dense(3)(inputs))))
