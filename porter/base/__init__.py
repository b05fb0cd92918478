"""What every room uses: errors, the dtypes of tensors, and the version with the packages that are
optional.
"""
