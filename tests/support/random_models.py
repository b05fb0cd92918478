"""Models of torchvision, timm and keras.applications with random weights whose answers depend on the image.

Every batch norm has the statistics of what arrives there, so that a wrong pad shows. Without norms every
layer is scaled so that its values have the deviation 1.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

CLASSES = 21


def torch_model(name: str, zoo: str, side: int, **stated: Any) -> Any:
    """A model of `torchvision` or `timm`, in eval mode; its norms see images of `side` rows and columns.

    Args:
        stated: what timm is told besides.
    """
    import torch

    from porter.zoos.torchvision import import_models

    torch.manual_seed(len(name))
    models = import_models()  # timm imports it too
    if zoo == "timm":
        import timm

        model = timm.create_model(name, num_classes=CLASSES, **{"exportable": True, **stated})
    else:
        plain = {"aux_logits": False, "init_weights": False} if name in ("inception_v3", "googlenet") else {}
        model = getattr(models, name)(weights=None, num_classes=CLASSES, **plain)
    return calibrated(model, name, side)


def calibrated(
    model: Any, name: str, side: int, answers_of: Callable[[Any], Any] = lambda given: given
) -> Any:
    """A module of torch, in eval mode; its weights and its norms see images of `side` rows and columns.

    Args:
        answers_of: the answers in what the module returns.
    """
    import torch
    from torch import nn

    torch.manual_seed(len(name))
    norms = [module for module in model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    images = torch.randn(8 if side < 400 else 2, 3, side, side)
    with torch.no_grad():
        for path, parameter in model.named_parameters():
            if (parameter.ndim == 1 and path.endswith("weight")) or "gamma" in path or "layer_scale" in path:
                parameter.uniform_(0.8, 1.2)
            elif parameter.ndim != 1 and not parameter.any():  # a branch that training begins without
                parameter.normal_(0, 0.5)
        for module in model.modules():
            # Not a residual that is called ResidualDrop.
            if type(module).__name__.startswith(("Drop", "StochasticDepth")):
                module.forward = lambda value, *_: value
        for norm in norms:
            norm.momentum = None
            norm.reset_running_stats()
        # A subclass of Conv2d may standardise its kernel as it runs, so that a scale of it is lost.
        layers = (
            [] if norms else [module for module in model.modules() if type(module) in (nn.Conv2d, nn.Linear)]
        )
        hooks = [layer.register_forward_hook(_scaled) for layer in layers]
        model.train(bool(norms))(images)
        for hook in hooks:
            hook.remove()
        model.eval()
        answers = answers_of(model(images))
    spread = float(answers.std(0).mean() / answers.abs().mean())
    assert spread >= 0.01, f"{name}'s answers hardly depend on the image"
    return model


def _scaled(layer: Any, _inputs: Any, value: Any) -> Any:
    """Makes the deviation of a layer's values 1, and the mean of each unit of a dense layer 0, if its values
    depend on the image: what a class token gives by itself would be 0 for every image. Values that are all
    alike stay as they are, such as those behind a norm of one channel.
    """
    deviation = value.std()
    if deviation <= 1e-6 * value.abs().max():
        return value
    layer.weight /= deviation
    value = value / deviation
    if layer.bias is not None:
        layer.bias /= deviation
    if layer.bias is not None and value.ndim == 2 and value.std(0).mean() >= 0.01:
        layer.bias -= value.mean(0)
        value = value - value.mean(0)
    return value


def keras_model(name: str, side: int) -> Any:
    """A model of keras.applications for images of `side` rows and columns."""
    import numpy as np

    from porter.frameworks.tf.runtime import import_keras
    from porter.verification.inputs import PIXELS, SIGNED, make_images

    keras = import_keras()
    keras.utils.set_random_seed(len(name))
    random = np.random.default_rng(len(name))
    model = getattr(keras.applications, name)(weights=None, input_shape=(side, side, 3), classes=CLASSES)
    taken = PIXELS if any(layer.__class__.__name__ == "Rescaling" for layer in model.layers) else SIGNED
    for variable in model.trainable_variables:
        kind = variable.path.rpartition("/")[2]
        if kind == "gamma":
            variable.assign(random.uniform(0.8, 1.2, variable.shape))
        elif kind in ("beta", "bias"):
            variable.assign(random.normal(0, 0.05, variable.shape))
    norms = [layer for layer in model._flatten_layers() if isinstance(layer, keras.layers.BatchNormalization)]
    for norm in norms:
        norm.momentum = 0.0
    convolutions = [layer for layer in model._flatten_layers() if getattr(layer, "bias", None) is not None]
    for layer in [] if norms else convolutions:
        object.__setattr__(layer, "call", functools.partial(_centred, layer, layer.call))
    batch = make_images((side, side), 8, 3, taken, seed=1).transpose(0, 2, 3, 1).astype(np.float32)
    model(batch, training=True)
    for layer in [] if norms else convolutions:
        object.__delattr__(layer, "call")
    for norm in norms:
        norm.momentum = 0.99
        norm.moving_variance.assign(
            norm.moving_variance * random.uniform(0.9, 1.1, norm.moving_variance.shape)
        )
    images = make_images((side, side), 4, 3, taken).transpose(0, 2, 3, 1).astype(np.float32)
    answers = np.log(np.asarray(model(images, training=False)) + 1e-9)
    spread = float(answers.std(axis=0).mean() / np.abs(answers).mean())
    assert spread >= 0.01, f"{name}'s answers hardly depend on the image"
    return model


def _centred(layer: Any, call: Any, value: Any, training: bool | None = None) -> Any:
    """Calls a layer after its kernel and bias are such that each channel has the mean 0 and the deviation 1,
    as after a norm.
    """
    import numpy as np

    found = np.asarray(call(value))
    axes = tuple(range(found.ndim - 1))
    deviation = found.std(axis=axes) + 1e-6
    kernel = next(variable for variable in layer.weights if variable is not layer.bias)
    kernel.assign(
        kernel / deviation.reshape(kernel.shape[-2:] if kernel.shape[-1] == 1 and kernel.ndim == 4 else (-1,))
    )
    layer.bias.assign((layer.bias - found.mean(axis=axes)) / deviation)
    return call(value)


def keras_model_of_any_size(fixed: Any) -> Any:
    """The same model for images of any size. Raises ValueError if a layer wants to know the size, as Flatten
    before Dense does.
    """
    config = fixed.get_config()
    config["layers"][0]["config"]["batch_shape"] = (None, None, None, 3)
    model = type(fixed).from_config(config)
    model.set_weights(fixed.get_weights())
    return model
