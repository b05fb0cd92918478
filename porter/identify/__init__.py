"""Which recipe a file is: the variants that it could be, what it is, and the doors for files that a user
names.
"""
