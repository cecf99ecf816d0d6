"""Settings of optimizers and losses as text that is the same in every process where they are."""

from typing import Any


def settings(value: Any) -> Any:
    """What a value is, in what JSON has.

    Without learning rates, which are variables, so that all take the chief's; and without names, which count how many
    a process has made.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, dict):
        return {str(key): settings(each) for key, each in value.items() if not _may_differ(key, each)}
    if isinstance(value, list | tuple):
        return [settings(each) for each in value]
    if isinstance(value, type) or not hasattr(value, "get_config"):
        return getattr(value, "__name__", type(value).__name__)
    try:
        return {type(value).__name__: settings(value.get_config())}
    except NotImplementedError:  # a schedule of one's own needs no configuration to train with
        return type(value).__name__


def _may_differ(key: Any, value: Any) -> bool:
    return key == "name" or (key == "learning_rate" and isinstance(value, float))
