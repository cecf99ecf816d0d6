"""Save and load files: always the template's, written whole, and read without trust."""
