"""Covariates of a whole population as text, exactly: they travel inside what a task is sent as."""

import base64

import numpy as np

from muster.common.seeds import FloatArray


def encoded(column: FloatArray) -> str:
    """Return what `decoded` reads: little-endian float64 in base64, 11 characters a device.

    Args:
        column: shape (population,).
    """
    return base64.b64encode(np.asarray(column, "<f8").tobytes()).decode()


def decoded(text: str) -> FloatArray:
    """Return the column, shape (population,).

    Raises:
        ValueError: `text` is none.
    """
    return np.frombuffer(base64.b64decode(text, validate=True), "<f8").astype(np.float64)
