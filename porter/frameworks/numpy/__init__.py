"""Porter's own engine, for files whose framework is not run: their operators in numpy, as the rows of their
format say them. `nets` is the kit for destinations whose framework is not run, and `ports` runs what such a
destination writes in the same engine.
"""
