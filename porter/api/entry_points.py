"""The functions of the API. Each is the one that the command line calls, with the same options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fnmatch import fnmatchcase
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any, ParamSpec
from weakref import finalize

from porter.api.port import Filled, Ported, open_port
from porter.api.speaking import public
from porter.base.calls import takes
from porter.base.commands import ConvertOptions, ListModelsOptions
from porter.base.errors import UsageError
from porter.base.options import path_of
from porter.comparison import compare as comparing
from porter.comparison.transfer.fill import fill_class
from porter.conversion.convert import make_port
from porter.evaluation import evaluate as evaluation, prediction
from porter.evaluation.padding_study import study as studies
from porter.frameworks.in_memory import Held, is_model
from porter.port.folder import load as _load
from porter.recipe import known_variants
from porter.recipe.spelling import hint
from porter.reporting import write_page
from porter.source import inspection
from porter.verification import reverify

P = ParamSpec("P")


def _for_scripts(function: Callable[P, Ported | Filled]) -> Callable[P, Ported | Any]:
    """Return `convert` with the type that it has for a typed script, which knows whether it gave `into`: of a
    union, the script would have to ask.
    """
    return function


@_for_scripts
@public
@takes(ConvertOptions)
def convert(asked: ConvertOptions) -> Ported | Filled:
    """Port a variant from a zoo, or a file that carries its own graph, to a framework, and prove the port
    against its source; with `into`, put the tensors into a class of your own.

    Args:
        subject: a variant, such as `resnet50v2`; without `source`, a file (or a port) whose graph needs no
            recipe, or a model in memory: a torch.nn.Module or an nnx.Module of Flax in eval mode, a
            keras.Model or an onnx.ModelProto, which stays as it is and is its own reference. Where a recipe
            has the graph, its names, labels and protocol are used.
        source: a zoo (`slim`), or a framework for its default zoo (`tf` is keras, `torch` is torchvision).
        to: a framework: `tf`, `torch`, `onnx`, `flax`, `mlx`, `tflite`, `caffe` or `mxnet`. `tensorflow`
            and `pytorch` are other names, here and for `source`; `keras` is one of `tf` here.
        into: in place of `to`, a class of your own (docs/guides/write-a-converter.md): a model in memory,
            which is filled in place; a class or a function that is called without arguments; or the text of
            one, as `model.py:build`, whose file is run, or `package.module.Class`, which is imported.
        example: what a module is exported with: a batch, or one for each input; None for zeros of
            `input_size`.
        weights: a weights file, or a port; None for the zoo's published file.
        out: the port's folder; None for `VARIANT-ZOO-FRAMEWORK` or, for a file, `STEM-FRAMEWORK` here; for a
            model in memory, a temporary folder that lives as long as the Port. It appears whole or not at
            all.
        padding: `shipped`, the pads of the zoo's own code, or `trained`, the pads that the weights were
            trained with, at the sites where the recipe says that the two differ.
        input_size: `224`, `(225, 201)` (rows x columns), `225x201` or `any`; None for the file's own,
            otherwise the recipe's.
        dtype: of storage: float32, float16, bfloat16 or float64.
        quantize: `dynamic` rounds the weights of a port to `tflite` to 8 bits, measures what they lose, and
            proves nothing.
        allow_overflow: lets values that `dtype` cannot hold become infinite.
        keep_background: keeps the background row of a 1001-class head.
        keep_activation: keeps the softmax or the sigmoid that gives a file's only output; no recipe is used
            then.
        keep_dropout: writes the dropouts that the file shows, for training; to `tf`, `torch`, `flax` and
            `mlx` only.
        preprocess: how a photo becomes the input, in place of what the recipe says, such as
            `resize=squash,size=96,interpolation=tf_bilinear,divide=127.5,mean=1`, or as port.json has it, or
            a file of either.
        class_names: a file with the name of a class on each line, in the order of the model's outputs.
        outputs: the names in the file of the values that the port gives, in place of its own outputs: the
            graph ends there. No recipe is used then.
        mapped: pairs of a layer of the file and its node, as `LAYER=NODE`; `LAYER=head/logits` chooses the
            head, and `FIRST,relu,LAST=head/logits` joins dense layers of a file that holds only weights.
        options: of the recipe, instead of the zoo's, if the file of weights does not record them:
            `{"transform_input": False}`.
        fold_bn: folds every batch norm that is the only reader of a convolution or dense layer into it, for
            deployment.
        stock: writes the names of the destination's stock class (torchvision, keras.applications), which must
            compute exactly the source's function; `timm` for timm's, in a folder that
            `timm.create_model("local-dir:FOLDER", pretrained=True)` opens.
        check: compares the port with its source; None compares if the frameworks that it needs are installed.
        reference: a reference of your own, with which the port is compared too: another file that carries its
            graph, or code as `model.py:build`, which is run; `build()` gives a torch.nn.Module, a keras.Model
            or an nnx.Module.
        origin: the zoo that the weights come from, which is `source`'s, whatever else states another one
            (docs/twins.md).
        recipes: a folder of recipes to use beside porter's and the user's; they come first
            (porter.recipe.find_recipes).

    Returns:
        The port; with `into`, a Filled.

    Raises:
        PorterError: the input is bad, or the port does not compute its source's function (CheckFailed).
    """
    held = Held(asked.subject, asked.example) if is_model(asked.subject) else None
    if held is None or asked.out is not None:
        return _made(asked, held)
    folder = mkdtemp(prefix="porter-")
    try:
        made = _made(replace(asked, out=f"{folder}/port"), held)
    except BaseException:
        rmtree(folder, ignore_errors=True)
        raise
    finalize(made, rmtree, folder, ignore_errors=True)
    return made


def _made(asked: ConvertOptions, held: Held | None) -> Ported | Filled:
    """Return what `convert` is asked for, with the model in memory that it is made from."""
    return Ported(make_port(asked), held) if asked.into is None else Filled(fill_class(asked))


verify = public(reverify.verify)
compare = public(comparing.compare)
predict = public(prediction.predict)
evaluate = public(evaluation.evaluate)
evaluate_several = public(evaluation.evaluate_several)
inspect = public(inspection.inspect)
study = public(studies.study)
report = public(write_page.report)
load = public(_load)
open = public(open_port)


@public
@takes(ListModelsOptions)
def list_models(asked: ListModelsOptions) -> list[tuple[str, str]]:
    """List the variants that porter has recipes of, each with a zoo that has it: `("resnet50v2", "keras")`.

    Args:
        name: of a variant, with `*` and `?` for any letters.
        zoo: only those of this zoo.
        recipes: as `convert`.

    Raises:
        UsageError: no recipe has the zoo.
    """
    zoo = asked.zoo
    known, _ = known_variants(path_of(asked.recipes))
    listed = [(entry.variant, entry.zoo) for entry in known]
    zoos = {zoo_of_variant for _, zoo_of_variant in listed}
    if zoo is not None and zoo not in zoos:
        raise UsageError(f"there is no zoo '{zoo}'", where="zoo", next=hint(zoo, zoos))
    return [
        (variant, zoo_of_variant)
        for variant, zoo_of_variant in listed
        if fnmatchcase(variant, asked.name) and zoo in (None, zoo_of_variant)
    ]
