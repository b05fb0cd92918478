"""The drawings of a report, each a pure function from figures to SVG. A width in px is what a drawing is made for: text keeps its
size, so that a page shows one drawing on a wide screen and a narrower one on a phone.
"""
