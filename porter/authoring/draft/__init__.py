"""Whole recipes drafted from graphs: patterns of names, and the text."""
