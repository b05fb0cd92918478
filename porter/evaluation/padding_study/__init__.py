"""`porter study padding`: which padding weights were trained with, by the accuracy that each candidate has."""
