"""TensorFlow's own files: checkpoints, frozen graphs and SavedModels, and running the graphs they carry."""
