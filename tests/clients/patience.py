"""How long a test waits. A limit here only ends a test that hangs: a slow machine reaches all of them."""

import time
from collections.abc import Callable
from typing import TypeVar

# How long nothing at all may move before a wait has failed.
PATIENCE_S = 120
# Between two looks.
PAUSE_S = 0.005

T = TypeVar("T")


def until(look: Callable[[], T], holds: Callable[[T], bool]) -> T:
    """Waits until `holds` says so of what `look` returns, and returns that."""
    before, since = None, time.monotonic()
    while not holds(seen := look()):
        if seen != before:
            before, since = seen, time.monotonic()
        if time.monotonic() - since > PATIENCE_S:
            raise AssertionError(f"nothing moves any more: {seen}")
        time.sleep(PAUSE_S)
    return seen
