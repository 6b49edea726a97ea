"""How annotations are checked in tests."""

from beartype import beartype


def check(function):
    """Check a function by beartype, unless it is defined in another one: it would be compiled at every call of that."""
    return function if "<locals>" in function.__qualname__ else beartype(function)
