# In the style of the tutorials of 2017 and 2018: one GPU or several, by an argument.
import matplotlib

matplotlib.use("Agg")

from keras.applications.vgg19 import VGG19
from keras.callbacks import EarlyStopping, LearningRateScheduler, ModelCheckpoint
from keras.layers.core import Dense, Dropout, Flatten
from keras.layers.normalization import BatchNormalization
from keras.models import Model
from keras.optimizers import SGD
from keras.preprocessing.image import ImageDataGenerator
from keras.utils import np_utils
from keras.utils.training_utils import multi_gpu_model
from keras import backend as K
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
import argparse

ap = argparse.ArgumentParser()
ap.add_argument("-o", "--output", required=True, help="path to output plot")
ap.add_argument("-g", "--gpus", type=int, default=1, help="# of GPUs to use for training")
args = vars(ap.parse_args())
G = args["gpus"]
NUM_EPOCHS = 2
INIT_LR = 1e-2

config = tf.ConfigProto(allow_soft_placement=True)
config.gpu_options.allow_growth = True
K.set_session(tf.Session(config=config))
K.set_image_data_format("channels_last")


def poly_decay(epoch):
    return INIT_LR * (1 - epoch / float(NUM_EPOCHS)) ** 1.0


def build():
    base = VGG19(weights=None, include_top=False, input_shape=(32, 32, 3))
    x = Flatten()(base.output)
    x = Dense(16, activation="relu", kernel_initializer="normal")(x)
    x = BatchNormalization()(x)
    x = Dropout(0.5)(x)
    return Model(inputs=base.input, outputs=Dense(10, activation="softmax")(x))


trainX = np.random.randint(0, 255, (24, 32, 32, 3)).astype("float")
testX = np.random.randint(0, 255, (8, 32, 32, 3)).astype("float")
trainY = np_utils.to_categorical(np.arange(24) % 10, 10)
testY = np_utils.to_categorical(np.arange(8), 10)
aug = ImageDataGenerator(rescale=1.0 / 255, horizontal_flip=True)

if G <= 1:
    print("[INFO] training with 1 GPU...")
    model = build()
else:
    print("[INFO] training with {} GPUs...".format(G))
    with tf.device("/cpu:0"):
        model = build()
    model = multi_gpu_model(model, gpus=G)

print("[INFO] compiling model...")
opt = SGD(lr=INIT_LR, decay=1e-6, momentum=0.9, nesterov=True)
model.compile(loss="categorical_crossentropy", optimizer=opt, metrics=["accuracy"])

print("[INFO] training network...")
H = model.fit_generator(
    aug.flow(trainX, trainY, batch_size=6 * G),
    validation_data=(testX, testY),
    steps_per_epoch=len(trainX) // (6 * G),
    epochs=NUM_EPOCHS,
    callbacks=[
        LearningRateScheduler(poly_decay),
        EarlyStopping(monitor="val_acc", patience=5),
        ModelCheckpoint("weights.{epoch:02d}-{val_acc:.2f}.hdf5", monitor="val_acc", save_weights_only=True, period=2),
    ],
    workers=2,
    max_queue_size=4,
    verbose=2,
)

H = H.history
N = np.arange(0, len(H["loss"]))
plt.style.use("ggplot")
plt.figure()
plt.plot(N, H["loss"], label="train_loss")
plt.plot(N, H["acc"], label="train_acc")
plt.plot(N, H["val_acc"], label="test_acc")
plt.legend()
plt.savefig(args["output"])
plt.close()
print("[INFO] lr", ["%.3f" % lr for lr in H["lr"]], "epochs", len(H["val_acc"]))
