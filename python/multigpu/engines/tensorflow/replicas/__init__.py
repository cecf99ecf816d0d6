"""Run the template as a function on its device, forward and backward."""
