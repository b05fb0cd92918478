"""Models that old Keras ran on Theano, with what they gave: run by a Python 3.7 with keras 1.2.2 or 2.2.4 and
Theano 1.0.5.

    python tests/support/keras_on_theano.py FOLDER

Writes FOLDER/{channels_first,channels_last}-ROWSxCOLUMNS.h5 and, by Keras 1, FOLDER/cosine-ROWSxCOLUMNS.h5,
and of each as .npz the images and the outputs in float32 and, by Keras 2, in float64.
"""

import os
import sys
from functools import partial
from importlib import import_module
from pathlib import Path

os.environ.update(KERAS_BACKEND="theano", THEANO_FLAGS="device=cpu,floatX=float32")
# So that what Theano compiles finds the BLAS that NumPy has, where there is no other.
if sys.platform != "win32":
    sys.setdlopenflags(sys.getdlopenflags() | os.RTLD_GLOBAL)

import numpy as np
import theano
from keras import __version__, backend, layers, models

import_module("theano.ifelse")  # Keras 1 expects that somebody did


def of_keras_1(image, axis):
    x = layers.Convolution2D(8, 3, 3, subsample=(2, 2), border_mode="same", activation="relu")(image)
    x = layers.BatchNormalization(axis=axis, mode=0)(x)
    x = layers.merge(
        [x, layers.Convolution2D(8, 4, 2, border_mode="same")(x)], mode="concat", concat_axis=axis
    )
    x = layers.ZeroPadding2D((1, 2))(layers.MaxPooling2D((3, 3), (2, 2), border_mode="same")(x))
    x = layers.Convolution2D(6, 2, 2, border_mode="valid")(x)
    return models.Model(input=image, output=layers.Dense(5)(layers.Flatten()(x)))


def of_a_cosine(image):
    x = layers.Flatten()(layers.Convolution2D(4, 3, 3, subsample=(4, 4))(image))
    return models.Model(
        input=image, output=layers.merge([layers.Dense(6)(x), layers.Dense(6)(x)], mode="cos", dot_axes=1)
    )


def of_keras_2(image, axis):
    x = layers.Conv2D(8, 3, strides=2, padding="same", activation="relu")(image)
    x = layers.BatchNormalization(axis=axis)(x)
    x = layers.Concatenate(axis=axis)([x, layers.Conv2D(8, (4, 2), padding="same")(x)])
    x = layers.AveragePooling2D(3, 1, padding="same")(layers.MaxPooling2D(3, 2, padding="same")(x))
    x = layers.Conv2D(6, 2, padding="valid")(layers.ZeroPadding2D((1, 2))(x))
    return models.Model(image, layers.Dense(5)(layers.Flatten()(x)))


def in_float64(make, shape, weights, images):
    """What the same model gives in float64, by Keras 2: Keras 1 decides its number type when it is
    imported.
    """
    theano.config.floatX = "float64"
    backend.set_floatx("float64")
    model = make(layers.Input(shape))
    model.set_weights([array.astype(np.float64) for array in weights])
    found = model.predict(images.astype(np.float64))
    theano.config.floatX = "float32"
    backend.set_floatx("float32")
    return found


def main(folder):
    one, random = __version__.startswith("1."), np.random.RandomState(0)
    for rows, columns in ((16, 16), (13, 18)):
        for order, axis in (("channels_first", 1), ("channels_last", 3)):
            if one:
                backend.set_image_dim_ordering({"channels_first": "th", "channels_last": "tf"}[order])
            else:
                backend.set_image_data_format(order)
            shape = (3, rows, columns) if axis == 1 else (rows, columns, 3)
            makers = {order: partial(of_keras_1 if one else of_keras_2, axis=axis)}
            if one and axis == 3:
                makers["cosine"] = partial(of_a_cosine)
            for name, make in makers.items():
                model = make(layers.Input(shape))
                numbers = [
                    random.normal(0, 0.3, array.shape).astype(np.float32) for array in model.get_weights()
                ]
                model.set_weights(
                    [np.abs(array) + np.float32(0.1) if array.ndim == 1 else array for array in numbers]
                )
                images = random.normal(0, 1, (2, *shape)).astype(np.float32)
                path = str(folder / f"{name}-{rows}x{columns}")
                model.save(path + ".h5")
                turned = images if axis == 1 else images.transpose(0, 3, 1, 2)
                given = {"float32": model.predict(images)}
                if not one:
                    given["float64"] = in_float64(make, shape, model.get_weights(), images)
                np.savez(path + ".npz", images=turned, **given)


main(Path(sys.argv[1]))
