"""The drawings of a report, each a pure function from figures to SVG. A drawing is made for a width in px,
because text keeps its size: a page shows one drawing on a wide screen and a narrower one on a phone.
"""
