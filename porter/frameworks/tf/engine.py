"""Runs Keras models, and the graphs of TensorFlow's files. See porter.frameworks.PortEngine. TensorFlow is
imported only when something is run.
"""

from porter.frameworks.defaults import disagreement as disagreement, with_other_pads as with_other_pads
from porter.frameworks.tf.evaluate import classifier as classifier
from porter.frameworks.tf.file_reference import build_file as build_file
from porter.frameworks.tf.ports.build import build as build
from porter.frameworks.tf.run import run as run, run_reference as run_reference

NAME = "tf"
RUNNER = "TensorFlow"
