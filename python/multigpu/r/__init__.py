"""All that R needs: what its package calls, the start, generators, interrupts, and R inside of a Python process."""
