"""The template as a function, run forward and backward on its device."""
