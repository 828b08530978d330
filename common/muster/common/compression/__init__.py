"""Compression of updates: unchanged, with fewer bits per entry, or with few of the entries.

A codec turns an update's vector into a body and back. The length of a body depends only on the
codec's settings and the number of parameters, so a server knows it before the first byte. A body is
read piece by piece, so code that only adds up updates does not hold whole decoded vectors.

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
    """Return the body of an update, and the residual to pass with the device's next update.

    Args:
        delta: shape (parameters,); not altered.
        residual: what earlier bodies left out; None before the first update, and for a codec
            without feedback.

    Returns:
        The body, and the new residual: None for a codec without feedback. The residual stays the
        same if the update is not finite, because the server will refuse such an update.
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
