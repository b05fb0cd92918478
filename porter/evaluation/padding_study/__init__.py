"""`porter study padding`: finds the padding that weights were trained with, by their results on photos under
each candidate.
"""
