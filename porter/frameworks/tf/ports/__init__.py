"""The destination: a plan as a Keras model, stated, written without Keras, and built in it."""
