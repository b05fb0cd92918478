"""Accuracy: a port and its source over labelled photos, the verdict on published figures, and the study of
paddings.
"""
