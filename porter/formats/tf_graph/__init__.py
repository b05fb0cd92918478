"""TensorFlow's own files: checkpoints, frozen graphs and SavedModels, and running the graphs that they carry."""
