"""Caffe: ports are a net as text and its weights. porter's own engine runs them, by the rows with which it
runs others' nets.
"""
