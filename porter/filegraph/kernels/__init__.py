"""Operators in numpy, in the number type of their inputs: what porter's own engine runs a file's graph with.

They take what a file says as it says it: pads, rounding and divisors are arguments. Nothing here knows a format, nor how porter
reads one. Maps are N×C×H×W; `channels_last` makes a kernel for N×H×W×C.

Today's formats run in their own frameworks. What runs here are the operators that ONNX's reference implementation computes wrongly
(porter.frameworks.onnx.operators), and formats whose framework no Python of today has; so far that is only the tests' toy format.
"""
