"""Refusals: errors of three parts, which R says in its own words."""

from typing import TypeVar

E = TypeVar("E", bound=Exception)


def refuse(expected: str, received: str, use: str = "", error: type[E] = ValueError) -> E:  # type: ignore[assignment]
    """An error to raise. Its parts are its attributes.

    Args:
        expected: what was.
        received: what was instead.
        use: what to do, in sentences.
        error: the class.
    """
    refusal = error(f"Expected {expected}. Received: {received}. {use}".rstrip())
    vars(refusal).update(expected=expected, received=received, use=use)
    return refusal


def with_more(error: E, text: str) -> E:
    """The same error, with one more sentence on what to do."""
    longer = type(error)(f"{error} {text}")
    vars(longer).update(vars(error), use=f"{vars(error).get('use', '')} {text}".lstrip())
    return longer
