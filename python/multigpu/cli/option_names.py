"""Rewrite an error of a function for the command line: `gpus=[0, 2]` becomes `--gpus 0,2`."""

import re

NAMES = "gpus|batch_size|optimizer|loss|steps|cpu_merge|cpu_relocation"
VALUE = r"'[^']*'|\[[^\]]*\]|[\w.:-]+"


def as_options(text: str) -> str:
    """Return the text of an error with the options of a command in place of arguments in Python."""
    text = text.replace("To call `multi_gpu_model` with these `gpus`", "For these `gpus`")
    text = re.sub(r"to be None, an? ", "to be a ", text).replace(", or None for ", ", or leave it out for ")
    text = re.sub(rf"\b({NAMES})=({VALUE})", lambda found: f"{_option(found[1])} {_word(found[2])}", text)
    return re.sub(rf"`({NAMES})`", lambda found: f"`{_option(found[1])}`", text)


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def _word(value: str) -> str:
    return re.sub(r"['\[\] ]", "", value)
