"""Exact text encoding of covariates of a whole population, which are sent as part of a task."""

import base64

import numpy as np

from muster.common.seeds import FloatArray


def encoded(column: FloatArray) -> str:
    """Return the column as text for `decoded`: little-endian float64 in base64, 11 characters per
    device.

    Args:
        column: shape (population,).
    """
    return base64.b64encode(np.asarray(column, "<f8").tobytes()).decode()


def decoded(text: str) -> FloatArray:
    """Return the column, shape (population,), from the text that `encoded` returned.

    Raises:
        ValueError: `text` is not an encoded column.
    """
    return np.frombuffer(base64.b64decode(text, validate=True), "<f8").astype(np.float64)
