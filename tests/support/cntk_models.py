"""Seven networks built by CNTK 2.7, which writes them as ONNX itself, with what it computes for one batch.

It runs under Python 3.6, outside porter's environment: `python tests/support/cntk_models.py FOLDER SIDE`
writes NAME.onnx and NAME.npz (the images, N x C x H x W, and the output) for each. CNTK's automatic padding
has (k-1)//2 cells first at every size of the input.
"""

import sys

import cntk as C
import numpy as np
from cntk.layers import AveragePooling, Dense, GlobalAveragePooling, MaxPooling

RANDOM = np.random.RandomState(0)
IMAGES = RANDOM.normal(0, 1, (3, 3, int(sys.argv[2]), int(sys.argv[2]) + 7)).astype(np.float32)


def norm(x):
    """A norm with the statistics of what arrives, so that a wrong pad shows."""
    values, channels = x.eval({x.arguments[0]: IMAGES}), x.shape[0]
    numbers = [
        RANDOM.uniform(0.8, 1.2, channels),
        RANDOM.normal(0, 0.2, channels),
        values.mean((0, 2, 3)),
        values.var((0, 2, 3)),
    ]
    scale, bias = (C.parameter(init=each.astype(np.float32)) for each in numbers[:2])
    mean, variance = (C.constant(each.astype(np.float32)) for each in numbers[2:])
    return C.batch_normalization(
        x, scale, bias, mean, variance, True, epsilon=1e-3, running_count=C.constant(0.0)
    )


def convolution(x, filters, kernel=3, stride=1, groups=1):
    shape = filters, x.shape[0] // groups, kernel, kernel
    numbers = C.parameter(init=RANDOM.normal(0, (2.0 / np.prod(shape[1:])) ** 0.5, shape).astype(np.float32))
    return C.convolution(
        numbers, x, strides=(stride, stride), auto_padding=[False, True, True], groups=groups
    )


def conv(x, filters, kernel=3, stride=1, groups=1, relu=True):
    x = norm(convolution(x, filters, kernel, stride, groups))
    return C.relu(x) if relu else x


def unit(x, filters, stride, groups=1):
    y = conv(conv(conv(x, filters, 1), filters, 3, stride, groups), 2 * filters, 1, relu=False)
    short = x if stride == 1 and x.shape[0] == 2 * filters else conv(x, 2 * filters, 1, stride, relu=False)
    return C.relu(y + short)


def stem(x):
    return MaxPooling((3, 3), strides=2, pad=True)(conv(x, 8, 7, 2))


def head(x):
    return Dense(5, init_bias=0.1)(GlobalAveragePooling()(x))


def resnet_v1(x):
    return head(unit(unit(stem(x), 8, 1), 8, 2))


def resnext(x):
    return head(unit(unit(stem(x), 8, 1, 4), 8, 2, 4))


def wide_resnet(x):
    return head(unit(stem(x), 24, 2))


def resnet_v2(x):
    x = stem(x)
    y = C.relu(norm(x))
    y = convolution(C.relu(norm(convolution(y, 8, 1))), 8, 3, 2)
    return head(C.relu(norm(y + MaxPooling((1, 1), strides=2)(x))))


def mobilenet_v1(x):
    x = conv(x, 8, 3, 2)
    for filters, stride in ((16, 1), (24, 2), (24, 2)):
        x = conv(conv(x, x.shape[0], 3, stride, x.shape[0]), filters, 1)
    return head(x)


def mobilenet_v2(x):
    x = conv(x, 8, 3, 2)
    for filters, stride in ((8, 1), (12, 2), (12, 1)):
        y = conv(x, 6 * x.shape[0], 1)
        y = conv(conv(y, y.shape[0], 3, stride, y.shape[0]), filters, 1, relu=False)
        x = x + y if stride == 1 and x.shape == y.shape else y
    return head(x)


def inception(x):
    x = MaxPooling((3, 3), strides=2)(conv(x, 8, 3, 2))
    pooled = conv(AveragePooling((3, 3), strides=1, pad=True)(x), 4, 1)
    x = C.splice(conv(x, 4, 1), conv(conv(x, 4, 1), 6, 5), conv(conv(x, 4, 1), 6, 3), pooled, axis=0)
    return head(C.splice(conv(x, 8, 3, 2), MaxPooling((3, 3), strides=2, pad=True)(x), axis=0))


NETWORKS = (resnet_v1, resnet_v2, resnext, wide_resnet, mobilenet_v1, mobilenet_v2, inception)


def main(folder):
    for network in NETWORKS:
        image = C.input_variable(IMAGES.shape[1:], name="image")
        model = network(image)
        model.save(f"{folder}/{network.__name__}.onnx", format=C.ModelFormat.ONNX)
        np.savez(f"{folder}/{network.__name__}.npz", images=IMAGES, output=model.eval({image: IMAGES}))
        print(network.__name__)


if __name__ == "__main__":
    main(sys.argv[1])
