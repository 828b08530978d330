"""When a program collects cyclic garbage: rarely, because a collection walks through all objects.

A program calls `import_quickly` first and `rarely_collect` when it has imported what it needs.
"""

import gc

_IMPORTED = 100_000
"""Number of new objects that trigger a collection while a program imports. Python's default of 700
makes a fifth of the time of importing torch or matplotlib."""

_GARBAGE = 10_000
"""Number of new objects that trigger a collection afterwards, some MiB at most."""


def import_quickly() -> None:
    """Hardly collect garbage during imports, because imported objects stay alive."""
    gc.set_threshold(_IMPORTED)


def rarely_collect() -> None:
    """Collect cyclic garbage rarely, and never visit objects that exist now.

    A collection walks through memory that is not needed otherwise, and in a fork it copies the
    memory that it touches. Garbage that exists now stays, because its memory would become holes
    between what has been imported: forked processes would fill them, and copy the pages around.
    """
    gc.freeze()
    gc.set_threshold(_GARBAGE)


def keep_what_is_left() -> None:
    """Collect all garbage now, and never visit again what is left: for a program between two runs,
    where everything that is still alive was imported or is cached."""
    gc.collect()
    rarely_collect()
