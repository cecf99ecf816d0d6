"""Image classification on several GPUs: a `tf.data` pipeline, mixed precision, checkpoints and early stopping.

    python examples/image_classification.py               # all GPUs of the machine
    python examples/image_classification.py --simulate 4  # four simulated GPUs, to try it anywhere

It prints the devices, loss and accuracy after each epoch, and the accuracy of the file with the best epoch, which
plain Keras loads. Expect 97 % for the handwritten digits of scikit-learn (`pip install scikit-learn`), which need no
download. `--cifar10` downloads 170 MB of photographs. With `--gpus 1` the same script trains a plain model.
"""

import argparse

import keras
import numpy as np
import tensorflow as tf
from keras import layers

import multigpu

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--gpus", type=int, help="number of GPUs to use; default: all")
parser.add_argument("--simulate", type=int, default=0, help="simulate this number of GPUs if the machine has fewer")
parser.add_argument("--batch-size", type=int, default=64, help="of the global batch, of all GPUs together")
parser.add_argument("--epochs", type=int, default=12)
parser.add_argument("--cifar10", action="store_true", help="photographs instead of digits")
parser.add_argument("--file", default="image_classification.keras", help="where the best epoch is saved")
args = parser.parse_args()


def load() -> tuple[np.ndarray, np.ndarray]:
    """Images from 0 to 1 and their classes."""
    if args.cifar10:
        (images, classes), _ = keras.datasets.cifar10.load_data()
        return (images / 255).astype("float32"), classes[:, 0]
    from sklearn.datasets import load_digits

    images, classes = load_digits(return_X_y=True)
    return (images / 16).astype("float32").reshape(-1, 8, 8, 1), classes


def moved(image: tf.Tensor, label: tf.Tensor, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The image moved by a pixel at most, by random numbers that come with it: the same in every run."""
    padded = tf.pad(image, [[1, 1], [1, 1], [0, 0]])
    return tf.image.stateless_random_crop(padded, tf.shape(image), seed), label


def batches(x: np.ndarray, y: np.ndarray) -> tf.data.Dataset:
    """The training data. A folder of files: `keras.utils.image_dataset_from_directory(folder, batch_size=None)`."""
    images = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(len(x), seed=0)
    seeds = tf.data.Dataset.random(seed=0, rerandomize_each_iteration=True).batch(2)
    augmented = tf.data.Dataset.zip(images, seeds).map(lambda pair, seed: moved(*pair, seed), tf.data.AUTOTUNE)
    # batches of one size: XLA, the default on GPUs, compiles each replica once for each size
    return augmented.batch(args.batch_size, drop_remainder=True).prefetch(tf.data.AUTOTUNE)


if args.simulate:
    multigpu.simulate_gpus(args.simulate)
keras.utils.set_random_seed(0)
keras.mixed_precision.set_global_policy("mixed_float16")  # weights stay float32, and the optimizer scales the loss

x, y = load()
test, validation, training = np.split(np.random.default_rng(0).permutation(len(x)), [len(x) // 6, len(x) // 3])
model = keras.Sequential([keras.Input(x.shape[1:])])
for filters in (32, 64):
    model.add(layers.Conv2D(filters, 3, padding="same", activation="relu"))
    model.add(layers.Conv2D(filters, 3, padding="same", activation="relu"))
    model.add(layers.MaxPooling2D())
model.add(layers.Flatten())
model.add(layers.Dense(10, activation="softmax", dtype="float32"))  # 16 bits are too few for small probabilities
try:
    model = multigpu.multi_gpu_model(model, gpus=args.gpus)
    print(f"Training: {model.plan}")
except multigpu.TooFewGPUsError as error:
    print(f"Training on one device. {error}")
model.compile(keras.optimizers.Adam(0.003), loss="sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(
    batches(x[training], y[training]),
    shuffle=False,  # the dataset does
    validation_data=(x[validation], y[validation]),
    validation_batch_size=args.batch_size,
    epochs=args.epochs,
    callbacks=[
        keras.callbacks.ModelCheckpoint(args.file, monitor="val_accuracy", save_best_only=True),
        keras.callbacks.EarlyStopping(monitor="val_accuracy", patience=4),
    ],
    verbose=2,
)
best = keras.models.load_model(args.file)  # a plain Keras model
accuracy = best.evaluate(x[test], y[test], verbose=0, return_dict=True)["accuracy"]
print(f"Saved in {args.file}: {accuracy:.2%} of {len(test)} held-out images are recognized")
