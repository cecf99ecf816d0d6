"""The Python side of the R package: its calls, start, generators, interrupts, and R inside a Python process."""
