"""Attributes of a parallel model that are those of its template."""

from typing import Any


class Shared:
    """An attribute or a method of the template, under the same name in the parallel model."""

    def __set_name__(self, kind: type, name: str) -> None:
        self._name = name

    def __get__(self, parallel: Any, kind: type) -> Any:
        """Return the template's value."""
        if parallel is None:
            return self
        if "template" not in parallel.__dict__:
            raise AttributeError(self._name)
        return getattr(parallel.__dict__["template"], self._name)

    def __set__(self, parallel: Any, value: Any) -> None:
        """Set the template's value. Before there is a template, do nothing: the template has its own value."""
        if "template" in parallel.__dict__:
            setattr(parallel.__dict__["template"], self._name, value)
