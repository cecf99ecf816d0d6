"""The parallel model of several workers."""
