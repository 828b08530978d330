"""One seed per scenario; every actor derives its own stream of random numbers by name.

A stream depends on the seed and its name alone, never on how many others exist or in which order
they draw. Adding a device therefore changes no other device's draws, and what several devices
share (a group's event, a draw without replacement) each computes from the same named stream.
"""

import hashlib

import numpy as np


def stream(seed: int, *name: str | int) -> np.random.Generator:
    """Return the generator called `name`, for example `stream(7, "batches", "phones-0003", 12)`.

    Philox is counter-based: its key is all the state a stream has before its first draw
    (Salmon et al., Parallel random numbers: as easy as 1, 2, 3, SC 2011).
    """
    return np.random.Generator(np.random.Philox(key=int.from_bytes(_digest(seed, name), "little")))


def integer(seed: int, *name: str | int) -> int:
    """Return the number in [0, 2^63) called `name`, for what takes a seed of its own."""
    return int.from_bytes(_digest(seed, name)[:8], "little") >> 1


def _digest(seed: int, name: tuple[str | int, ...]) -> bytes:
    # Length-prefixed, so that ("ab", "c") and ("a", "bc") are different names.
    text = "".join(f"{len(part)}:{part}" for part in map(str, (seed, *name)))
    return hashlib.blake2b(text.encode(), digest_size=16).digest()
