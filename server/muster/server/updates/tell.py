"""The type of the function that reports events."""

from collections.abc import Callable

Tell = Callable[..., None]
"""Records an event in the journal and forwards it to watchers: `tell("received", round=3)`."""
