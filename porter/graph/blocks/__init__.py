"""Repeated parts of a graph, by how its values flow and by its layers' names. A recipe prints them as YAML,
torch as Python.
"""
