"""Flax: what porter writes modules of flax.nnx with, and runs them. JAX is imported only to run."""
