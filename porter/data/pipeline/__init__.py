"""Photos in, batches of cropped pixels out: decoded in worker processes, kept for the next run where the user
names a folder.

Photos are divided into chunks of 16 consecutive ones. A worker decodes and resizes a chunk's photos into one
file; a thread reads it; another crops and stacks batches while the model computes the last ones. Photos are
kept before the crop, so one cache serves any number of crops, and every scaling, channel order, convention
and port.

A photo of 500 x 375 takes 262 kB resized to 256 x 341 bytes; the whole of ImageNet's validation set takes 13
GB. The protocols of TensorFlow 1 resample to fractions, which are kept as float32 to stay exact: 1.07 MB at
299 x 299, the whole set 54 GB.
"""
