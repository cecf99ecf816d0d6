"""What `python -m multigpu` can do: one file per command, all listed in `main.py`."""
