"""Models that old Keras ran on Theano, with what they gave: run by a Python 3.7 with keras 1.2.2 or 2.2.4 and Theano 1.0.5.

    python tests/keras_on_theano.py FOLDER

Writes FOLDER/{channels_first,channels_last}.h5 and, by Keras 1, FOLDER/cosine.h5, and the images and outputs of each as .npz.
"""

import os
import sys
from importlib import import_module
from pathlib import Path

os.environ.update(KERAS_BACKEND="theano", THEANO_FLAGS="device=cpu,floatX=float32")

import numpy as np
from keras import __version__, backend, layers, models

import_module("theano.ifelse")  # Keras 1 expects that somebody did


def of_keras_1(image, axis):
    x = layers.Convolution2D(8, 3, 3, subsample=(2, 2), border_mode="same", activation="relu")(image)
    x = layers.BatchNormalization(axis=axis, mode=0)(x)
    x = layers.merge([x, layers.Convolution2D(8, 4, 2, border_mode="same")(x)], mode="concat", concat_axis=axis)
    x = layers.ZeroPadding2D((1, 2))(layers.MaxPooling2D((3, 3), (2, 2), border_mode="same")(x))
    x = layers.Convolution2D(6, 2, 2, border_mode="valid")(x)
    return models.Model(input=image, output=layers.Dense(5)(layers.Flatten()(x)))


def of_a_cosine(image):
    x = layers.Flatten()(layers.Convolution2D(4, 3, 3, subsample=(4, 4))(image))
    return models.Model(input=image, output=layers.merge([layers.Dense(6)(x), layers.Dense(6)(x)], mode="cos", dot_axes=1))


def of_keras_2(image, axis):
    x = layers.Conv2D(8, 3, strides=2, padding="same", activation="relu")(image)
    x = layers.BatchNormalization(axis=axis)(x)
    x = layers.Concatenate(axis=axis)([x, layers.Conv2D(8, (4, 2), padding="same")(x)])
    x = layers.AveragePooling2D(3, 1, padding="same")(layers.MaxPooling2D(3, 2, padding="same")(x))
    x = layers.Conv2D(6, 2, padding="valid")(layers.ZeroPadding2D((1, 2))(x))
    return models.Model(image, layers.Dense(5)(layers.Flatten()(x)))


def main(folder):
    one, random = __version__.startswith("1."), np.random.RandomState(0)
    for order, axis, shape in (("channels_first", 1, (3, 13, 18)), ("channels_last", 3, (13, 18, 3))):
        if one:
            backend.set_image_dim_ordering({"channels_first": "th", "channels_last": "tf"}[order])
        else:
            backend.set_image_data_format(order)
        made = {order: (of_keras_1 if one else of_keras_2)(layers.Input(shape), axis)}
        if one and axis == 3:
            made["cosine"] = of_a_cosine(layers.Input(shape))
        for name, model in made.items():
            numbers = [random.normal(0, 0.3, array.shape) for array in model.get_weights()]
            model.set_weights([np.abs(array) + 0.1 if array.ndim == 1 else array for array in numbers])
            images = random.normal(0, 1, (2, *shape)).astype(np.float32)
            model.save(str(folder / f"{name}.h5"))
            turned = images if axis == 1 else images.transpose(0, 3, 1, 2)
            np.savez(folder / f"{name}.npz", images=turned, output=model.predict(images))


main(Path(sys.argv[1]))
