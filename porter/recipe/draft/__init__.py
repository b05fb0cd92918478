"""Whole recipes drafted from graphs: steps and blocks, patterns of names, and the text."""
