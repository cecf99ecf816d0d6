"""Refusals: errors of three parts, which R renders in its own words."""

from typing import TypeVar

E = TypeVar("E", bound=Exception)


def refuse(expected: str, received: str, use: str = "", error: type[E] = ValueError) -> E:  # type: ignore[assignment]
    """Return an error to raise. Its parts are its attributes, from which R makes its own.

    Args:
        expected: what was expected, without a full stop.
        received: what was received instead, without a full stop.
        use: what to do, in sentences.
        error: the class of the error.
    """
    refusal = error(f"Expected {expected}. Received: {received}. {use}".rstrip())
    # Without the last name, Keras makes a new error, without these parts, of each that the call of a layer raises
    vars(refusal).update(expected=expected, received=received, use=use, _keras_call_info_injected=True)
    return refusal


def is_refusal(error: Exception) -> bool:
    """Return whether an error is one of these."""
    return "expected" in vars(error)


def with_more(error: E, text: str) -> E:
    """Return the same error, with one more sentence on what to do."""
    longer = type(error)(f"{error} {text}")
    vars(longer).update(vars(error), use=f"{vars(error).get('use', '')} {text}".lstrip())
    return longer
