"""Images, the preprocessing protocols that published accuracies were measured with, and class names."""
