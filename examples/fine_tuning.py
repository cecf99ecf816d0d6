"""Fine-tuning on several GPUs: a trained body, a new head, BatchNormalization with the statistics of the global batch.

    python examples/fine_tuning.py               # all GPUs of the machine
    python examples/fine_tuning.py --simulate 4  # four simulated GPUs, to try it anywhere

A network learns the handwritten digits 0 to 4. Then its body is frozen and gets a new head for 5 to 9, from only 100
images. Then the body is unfrozen, and training continues at a low learning rate. `--mobilenet imagenet` starts from
MobileNetV2 with weights trained on ImageNet instead (a download of 9 MB).

Few large images fit on a GPU, so their mean is a poor estimate of the mean of all. With `synchronized=True`, layers use
the mean and the variance of the global batch. The numbers then equal those of one GPU with the whole batch: `--gpus 1`
prints the same losses. Expect 91 % of the digits with the new head, and 96 % at the end. The script needs scikit-learn.
"""

import argparse

import keras
import numpy as np
from keras import layers
from sklearn.datasets import load_digits

import multigpu

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--gpus", type=int, help="number of GPUs to use; default: all")
parser.add_argument("--simulate", type=int, default=0, help="simulate this number of GPUs if the machine has fewer")
parser.add_argument("--mobilenet", metavar="WEIGHTS", help="MobileNetV2 as the body: `imagenet`, or a file of weights")
parser.add_argument("--epochs", type=int, default=15, help="of each of the trainings")
parser.add_argument("--file", default="fine_tuning.keras", help="where the model is saved")
args = parser.parse_args()


def small_body() -> keras.Model:
    """Convolutions, each with a normalization over the global batch: 8 × 8 pixels → 256 features."""
    body = keras.Sequential([keras.Input((8, 8, 1)), layers.Rescaling(1 / 8, offset=-1)])
    for filters in (32, 64):
        body.add(layers.Conv2D(filters, 3, padding="same", use_bias=False))
        body.add(layers.BatchNormalization(momentum=0.9, synchronized=True))  # an epoch has few steps
        body.add(layers.ReLU())
        body.add(layers.MaxPooling2D())
    body.add(layers.Flatten())
    return body


def mobilenet(weights: str) -> keras.Model:
    """MobileNetV2, for small gray images; its normalizations are synchronized afterwards."""
    trained = keras.applications.MobileNetV2((96, 96, 3), include_top=False, weights=weights, pooling="avg")
    for layer in trained.layers:
        if isinstance(layer, layers.BatchNormalization):
            layer.synchronized = True
    image = keras.Input((8, 8, 1))
    gray = layers.Resizing(96, 96)(layers.Rescaling(1 / 8, offset=-1)(image))
    return keras.Model(image, trained(layers.Concatenate()([gray, gray, gray])))


def with_new_head(body: keras.Model) -> keras.Model:
    """The body with a head for five classes, on all GPUs; where there is only one, the plain model."""
    model = keras.Sequential([keras.Input((8, 8, 1)), body, layers.Dense(5, activation="softmax")])
    try:
        model = multigpu.multi_gpu_model(model, gpus=args.gpus)
        print(f"Training: {model.plan}")
    except multigpu.TooFewGPUsError as error:
        print(f"Training on one device. {error}")
    return model


def train(title: str, model: keras.Model, rate: float, training: np.ndarray, validation: np.ndarray) -> None:
    """Trains on these rows; layers are frozen or unfrozen when it compiles."""
    model.compile(keras.optimizers.Adam(rate), loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    held_out = x[validation], y[validation]
    history = model.fit(x[training], y[training], 32, args.epochs, validation_data=held_out, verbose=0).history
    print(f"{title}: " + ", ".join(f"{name} {values[-1]:.4f}" for name, values in history.items()))


if args.simulate:
    multigpu.simulate_gpus(args.simulate)
keras.utils.set_random_seed(0)
images, digits = load_digits(return_X_y=True)
x, y = images.reshape(-1, 8, 8, 1).astype("float32"), digits % 5
order = np.random.default_rng(0).permutation(len(x))
old, new = order[digits[order] < 5], order[digits[order] >= 5]

if args.mobilenet:
    body = mobilenet(args.mobilenet)
else:
    body = small_body()
    train("The body, digits 0 to 4", with_new_head(body), 0.003, old[200:], old[:200])
body.trainable = False  # its normalizations then use their moving statistics, in training as well
model = with_new_head(body)
train("A new head, digits 5 to 9", model, 0.01, new[:100], new[100:])
body.trainable = True
train("All layers, digits 5 to 9", model, 0.001, new[:100], new[100:])
model.save(args.file)
print(f"Saved in {args.file}, a plain Keras file")
