"""Files: written whole, read without trust, and always those of the template."""
