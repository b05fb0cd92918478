"""Porter's own engine, for files whose framework is not run: their operators in numpy, as the rows of their
format say them.
"""
