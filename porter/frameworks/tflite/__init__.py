"""TensorFlow Lite's ports: what TensorFlow's converter makes of porter's Keras build, run by TensorFlow's
interpreter.
"""

FILE = "model.tflite"
"""The file of a port, and its path among tensors."""
FILE_BYTES = "bytes"
"""The role under which the bytes of the file stand among tensors."""
