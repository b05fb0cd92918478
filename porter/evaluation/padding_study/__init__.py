"""`porter study padding`: which padding weights were trained with, by what they make of photos under each candidate."""
