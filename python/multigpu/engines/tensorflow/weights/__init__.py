"""Where weights are stored, and how they and their gradients travel."""
