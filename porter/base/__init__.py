"""What every room may use: errors and progress bars; the commands, their options, and how messages name
these; the types of arrays and tables; how a model runs, and which of its layers act in training only;
plug-ins, the version and the optional packages.
"""
