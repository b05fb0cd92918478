"""TensorFlow Lite's ports: what TensorFlow's converter makes of porter's Keras build, run by TensorFlow's
interpreter.
"""
