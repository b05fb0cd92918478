"""Operators in numpy, in the number type of their inputs: what porter's own engine runs a file's graph with.

They take what a file says as it says it: pads, rounding and divisors are arguments. Nothing here knows a
format, nor how porter reads one. Maps are N×C×H×W; `channels_last` makes a kernel for N×H×W×C.

What runs here are formats whose framework no Python of today has, or whose framework computes in one number
type only, and the operators that ONNX's reference implementation computes wrongly
(porter.frameworks.onnx.operators).
"""
