"""Hyperparameters on several GPUs, with keras-tuner: one line makes each model of the search parallel.

    pip install keras-tuner tensorboard scikit-learn  # keras-tuner needs tensorboard
    python examples/tuner.py               # all GPUs of the machine
    python examples/tuner.py --simulate 4  # four simulated GPUs, to try it anywhere

Trials run one after the other, each on all GPUs. When one ends, its memory is free again. The files of the search, in
`--folder`, contain plain models: you can begin a search on four GPUs and continue it on two, or with `--gpus 1`. The
script prints the trials of the search, the best numbers, and the accuracy of the best model, which it saves as a plain
file.
Expect 97 % of the handwritten digits.
"""

import argparse
from pathlib import Path

import keras
import keras_tuner
import numpy as np
from keras import layers
from sklearn.datasets import load_digits

import multigpu

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--gpus", type=int, help="number of GPUs to use; default: all")
parser.add_argument("--simulate", type=int, default=0, help="simulate this number of GPUs if the machine has fewer")
parser.add_argument("--trials", type=int, default=6)
parser.add_argument("--epochs", type=int, default=8, help="of each trial")
parser.add_argument("--folder", type=Path, default=Path("tuner"), help="of the search, which goes on where it stopped")
args = parser.parse_args()


def build(hp: keras_tuner.HyperParameters) -> keras.Model:
    model = keras.Sequential([keras.Input((8, 8, 1)), layers.Rescaling(1 / 16)])
    for number in range(hp.Int("convolutions", 1, 2)):
        filters = hp.Choice(f"filters_{number}", [16, 32, 64])
        model.add(layers.Conv2D(filters, 3, padding="same", activation="relu"))
    model.add(layers.Flatten())
    model.add(layers.Dense(10, activation="softmax"))
    try:
        model = multigpu.multi_gpu_model(model, gpus=args.gpus)  # the one line
        print(f"Training: {model.plan}")
    except multigpu.TooFewGPUsError as error:
        print(f"Training on one device. {error}")
    rate = hp.Float("rate", 1e-4, 1e-2, sampling="log")
    model.compile(keras.optimizers.Adam(rate), loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


if args.simulate:
    multigpu.simulate_gpus(args.simulate)
keras.utils.set_random_seed(0)
x, y = load_digits(return_X_y=True)
x = x.reshape(-1, 8, 8, 1).astype("float32")
order = np.random.default_rng(0).permutation(len(x))
training, validation, test = np.split(order, [1197, 1497])

tuner = keras_tuner.RandomSearch(
    build, objective="val_accuracy", max_trials=args.trials, seed=0, directory=args.folder, project_name="digits"
)
tuner.search(
    x[training],
    y[training],
    validation_data=(x[validation], y[validation]),
    batch_size=64,
    epochs=args.epochs,
    callbacks=[keras.callbacks.EarlyStopping("val_accuracy", patience=3)],
    verbose=2,
)
print("Best:", tuner.get_best_hyperparameters()[0].values)
(best,) = tuner.get_best_models(1)  # parallel, with the weights of its best epoch
accuracy = best.evaluate(x[test], y[test], verbose=0, return_dict=True)["accuracy"]
best.save(args.folder / "best.keras")  # a plain Keras file
print(f"Saved in {args.folder / 'best.keras'}: {accuracy:.2%} of {len(test)} held-out digits are recognized")
