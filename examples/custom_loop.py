"""A training loop of your own on several GPUs: contrastive learning, with a loss that compares all rows of a batch.

    python examples/custom_loop.py               # all GPUs of the machine
    python examples/custom_loop.py --simulate 4  # four simulated GPUs, to try it anywhere

An encoder sees each signal twice, with different noise each time. Among the codes of all signals it has to find the
other code of the same signal. `parallel(x, training=True)` runs on all GPUs and returns the codes of the global batch,
so the loss compares each row with all others, also with rows on other GPUs: `--gpus 1` prints the same losses. The loop
clips gradients, decays the learning rate, and uses metrics of Keras. The script generates the signals. Expect it to
find 5 % of the new signals before the training, and 75 % after it.
"""

import argparse
import time

import keras
import numpy as np
import tensorflow as tf
from keras import layers

import multigpu

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--gpus", type=int, help="number of GPUs to use; default: all")
parser.add_argument("--simulate", type=int, default=0, help="simulate this number of GPUs if the machine has fewer")
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--file", default="encoder.keras", help="where the encoder is saved")
args = parser.parse_args()
if args.simulate:
    multigpu.simulate_gpus(args.simulate)
keras.utils.set_random_seed(0)


def two_views(signals: tf.Tensor, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The signals twice, with other noise: by random numbers that come with them, the same in every run."""
    noise = tf.random.stateless_normal((2, *signals.shape), seed, stddev=4.0)
    return signals + noise[0], signals + noise[1]


rng = np.random.default_rng(0)
signals = (rng.normal(size=(4096 + 256, 8)) @ rng.normal(size=(8, 128))).astype("float32")  # of 8 hidden numbers
held_out = two_views(signals[:256], tf.constant([0, 0]))
shuffled = tf.data.Dataset.from_tensor_slices(signals[256:]).shuffle(4096, seed=0).batch(256, drop_remainder=True)
seeds = tf.data.Dataset.random(seed=0, rerandomize_each_iteration=True).batch(2)
batches = tf.data.Dataset.zip(shuffled, seeds).map(two_views, tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)

encoder = keras.Sequential([keras.Input((128,)), layers.Dense(256, activation="relu"), layers.Dense(32)])
try:
    parallel = multigpu.multi_gpu_model(encoder, gpus=args.gpus)
    print(f"Training: {parallel.plan}")
except multigpu.TooFewGPUsError as error:
    parallel = encoder
    print(f"Training on one device. {error}")

schedule = keras.optimizers.schedules.CosineDecay(0.003, args.epochs * len(batches))
optimizer = keras.optimizers.Adam(schedule)
optimizer.build(parallel.trainable_variables)  # a `tf.function` makes no variables after its first trace
mean_loss, mean_norm = keras.metrics.Mean("loss"), keras.metrics.Mean("norm of gradients")
found = keras.metrics.SparseCategoricalAccuracy("found")


def compare(first: tf.Tensor, second: tf.Tensor, training: bool) -> tf.Tensor:
    """The loss of a batch: how likely each row's other view is the right one, among those of all rows."""
    codes = parallel(tf.concat([first, second], 0), training=training)  # one call is one pass over the GPUs
    one, other = tf.split(tf.math.l2_normalize(codes, axis=1), 2)
    logits = tf.matmul(one, other, transpose_b=True) / 0.1
    right = tf.range(tf.shape(logits)[0])
    found.update_state(right, logits)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(right, logits))
    return tf.add_n([loss, *parallel.losses])  # with those that layers add, if they do


@tf.function  # without `jit_compile`, which would put all replicas on one GPU
def train_step(first: tf.Tensor, second: tf.Tensor) -> None:
    with tf.GradientTape() as tape:
        loss = compare(first, second, training=True)
    gradients = tape.gradient(loss, parallel.trainable_variables)
    gradients, norm = tf.clip_by_global_norm(gradients, 1.0)  # of the gradients of all GPUs together
    optimizer.apply(gradients, parallel.trainable_variables)
    mean_loss.update_state(loss)
    mean_norm.update_state(norm)


def share_found() -> float:
    """The share of held-out signals whose other view is found."""
    found.reset_state()
    compare(*held_out, training=False)
    return float(found.result())


print(f"Before the training, of 256 held-out signals are found: {share_found():.2%}")
for epoch in range(args.epochs):
    start = time.perf_counter()
    for metric in (mean_loss, mean_norm, found):
        metric.reset_state()
    for first, second in batches:
        train_step(first, second)
    numbers = ", ".join(f"{metric.name} {float(metric.result()):.4f}" for metric in (mean_loss, mean_norm, found))
    print(f"Epoch {epoch + 1}/{args.epochs}: {numbers}, {time.perf_counter() - start:.1f} s")
print(f"After the training, of 256 held-out signals are found: {share_found():.2%}")
encoder.save(args.file)  # a plain Keras file
print(f"Saved in {args.file}")
