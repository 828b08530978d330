"""How an update travels: as it is, with fewer bits to an entry, or with few of its entries.

A codec turns an update's vector into a body and back. The length of a body is decided by settings
and parameters, so a server knows it before the first byte; and a body is read piece by piece, so
that nobody holds a decoded vector who only wants to add it up.

    body, residual = compress(codec, delta, residual, lambda: stream(7, "compression", client, 3))
    largest, squares = codec.check(pread, parameters)   # refuses what no `encode` wrote
    block = codec.read(pread, 0, 65_536, parameters)
"""

from typing import Annotated

import numpy as np
from pydantic import BeforeValidator, SerializeAsAny

from muster.common.compression.contract import Codec, Draws, EntryRange, Pread, pread_of
from muster.common.compression.float16 import Float16
from muster.common.compression.int8 import Int8
from muster.common.compression.top_k import TopK
from muster.common.compression.whole import Whole
from muster.common.plugins import Registry
from muster.common.tensors import Vector

BUILT_IN: dict[str, type[Codec]] = {
    "none": Whole,
    "float16": Float16,
    "int8": Int8,
    "top-k": TopK,
}
CODECS = Registry("codec", "muster.compression", BUILT_IN)
AnyCodec = Annotated[SerializeAsAny[Codec], BeforeValidator(CODECS.parse)]
"""A codec as a setting."""


def compress(
    codec: Codec, delta: Vector, residual: Vector | None, draws: Draws
) -> tuple[bytes | memoryview, Vector | None]:
    """Return the body of an update, and what to hand in with the device's next one.

    Args:
        delta: shape (parameters,); not altered.
        residual: what earlier bodies left out; None before the first, and without feedback.

    Returns:
        The body, and the new residual: None for a codec without feedback. An update that is not
        finite will be refused, so the residual stays what it was.
    """
    if not codec.feedback:
        return codec.encode(delta, draws), None
    with np.errstate(over="ignore", invalid="ignore"):
        wanted = delta if residual is None else delta + residual
    body = codec.encode(wanted, draws)
    left = wanted - codec.decode(body, len(wanted)) if np.isfinite(wanted).all() else residual
    return body, left


__all__ = [
    "BUILT_IN",
    "CODECS",
    "AnyCodec",
    "Codec",
    "Draws",
    "EntryRange",
    "Pread",
    "Whole",
    "compress",
    "pread_of",
]
