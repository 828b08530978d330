"""The stored form of a rate: a NumPy file with the instants and the bits until each, float64.

It is mapped into memory, so that all processes of a machine share it.
"""

import io
from pathlib import Path

import numpy as np

from muster.common.files import write_atomic
from muster.common.rates.over_time import RateOverTime
from muster.common.rates.recording import Recording

MAGIC = b"\x93NUMPY"

_EXPECTED = "as `muster trace import` writes it"


def read(path: Path) -> Recording:
    try:
        table = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError, SyntaxError) as error:
        raise ValueError(f"{path} is a damaged NumPy file ({error}); import it again") from None
    if table.dtype != np.float64 or table.ndim != 2 or len(table) != 2 or table.shape[1] < 2:
        raise ValueError(
            f"{path} has {table.dtype} of shape {table.shape}; expected float64 of shape (2, "
            f"instants), {_EXPECTED}"
        )
    instants, bits = table
    fine = np.isfinite(table).all() and (np.diff(instants) > 0).all() and (np.diff(bits) >= 0).all()
    if not fine or instants[0] or bits[0] or not bits[-1]:
        raise ValueError(f"{path} is damaged; expected ascending instants and bits, {_EXPECTED}")
    return Recording.of(RateOverTime(instants, bits), "bits until each instant")


def write(path: Path, rate: RateOverTime) -> None:
    """Write a rate so that `read` reads the same."""
    header = io.BytesIO()
    shape = (2, len(rate.instants))
    np.lib.format.write_array_header_1_0(
        header, {"shape": shape, "fortran_order": False, "descr": "<f8"}
    )
    rows = (each.data.cast("B") for each in (rate.instants, rate.bits))
    write_atomic(path, header.getvalue(), *rows)
