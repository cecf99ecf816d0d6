"""The commands of `python -m multigpu`: one file per command, all listed in `main.py`."""
