"""Shamir's secret sharing (1979) of secrets of 32 bytes.

A secret is the value at 0 of a random polynomial of degree threshold - 1 over the integers modulo
2^256 + 297, the smallest prime above all secrets. A share is its value at another place. Fewer
shares than the threshold say nothing about the secret.
"""

import secrets
from collections.abc import Mapping, Sequence
from typing import Final

PRIME: Final = 2**256 + 297

SECRET_BYTES: Final = 32

SHARE_BYTES: Final = 33


def split(secret: bytes, places: Sequence[int], threshold: int) -> list[bytes]:
    """Split a secret into one share for each place.

    Args:
        places: different numbers from 1.
        threshold: how many shares give the secret back.
    """
    rest = [secrets.randbelow(PRIME) for _ in range(threshold - 1)]
    return shares_of([int.from_bytes(secret, "big"), *rest], places)


def shares_of(coefficients: Sequence[int], places: Sequence[int]) -> list[bytes]:
    """The shares of a polynomial, whose coefficients begin with the secret."""
    shares = []
    for place in places:
        value = 0
        for coefficient in reversed(coefficients):
            value = (value * place + coefficient) % PRIME
        shares.append(value.to_bytes(SHARE_BYTES, "big"))
    return shares


def joined(shares: Mapping[int, bytes]) -> bytes | None:
    """The secret of shares, by place; None if they are no shares of a secret of 32 bytes.

    Args:
        shares: as many as the threshold.
    """
    secret = 0
    for place, share in shares.items():
        above, below = 1, 1
        for other in shares:
            if other != place:
                above = above * other % PRIME
                below = below * (other - place) % PRIME
        secret += int.from_bytes(share, "big") * above * pow(below, -1, PRIME)
    secret %= PRIME
    return None if secret >> (8 * SECRET_BYTES) else secret.to_bytes(SECRET_BYTES, "big")
