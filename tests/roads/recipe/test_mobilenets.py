"""The facts that every recipe has, and older names of MobileNets."""

from porter.data.labels import Labels
from porter.recipe import LayerName, expand, find_recipe, layer_names
from tests.support.parity import LINEN, OWN_CODE
from tests.support.recipe.recipes import NO_PROTOCOL, all_recipes


def test_every_zoo_of_every_recipe_is_complete() -> None:
    """tests/unit/authoring/check expands and names all of them."""
    for recipe in all_recipes():
        for variant in recipe.variants:
            for zoo in recipe.zoos_of(variant).values():
                assert (zoo.preprocess is None) == ((recipe.architecture, zoo.name) in NO_PROTOCOL)
                # Those of MXNet and Caffe are held to their own nets under `full`, Flax's examples to code of
                # the tests.
                own = zoo.name in OWN_CODE or (recipe.architecture, zoo.name) in LINEN
                unproved = own or zoo.framework in ("mxnet", "caffe")
                assert (zoo.labels == Labels("imagenet-1000") and zoo.reference) or unproved
                assert zoo.published.keys() <= zoo.files.keys() and all(
                    file.licence for file in zoo.files.values()
                )


def test_the_default_zoo_of_a_framework() -> None:
    recipe = find_recipe("mobilenet_v2")
    assert (
        recipe.zoo("tf", "mobilenet_v2").name == "keras"
        and recipe.zoo("torch", "mobilenet_v2").name == "torchvision"
    )


def test_keras_2_2_called_mobilenet_v2s_head_otherwise() -> None:
    """keras_applications/mobilenet_v2.py of keras-applications 1.0.2 to 1.0.8: `name='Logits'`; the rest as
    today.
    """
    recipe = find_recipe("mobilenet_v2")
    member = recipe.member("mobilenet_v2", "keras")
    graph = expand(member)
    today, then = (layer_names(member, graph, label) for label in (None, "keras-2.2"))
    assert {path: name for path, name in then.items() if name != today[path]} == {
        "head/logits": LayerName("Logits", ())
    }
