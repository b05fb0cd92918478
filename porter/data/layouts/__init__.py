"""Data sets of labelled photos as people have them, recognised by what is in them. docs/data.md lists the
layouts.
"""
