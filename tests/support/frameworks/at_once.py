"""Imports the frameworks: a process that is forked of one that has imported this has them at once."""

import flax.nnx

from porter.formats.tensorflow import import_tensorflow
from porter.frameworks.tf.runtime import import_keras
from porter.zoos.timm import import_timm

IMPORTED = (import_tensorflow(), import_keras(), import_timm(), flax.nnx)
