"""How devices report metrics of the user's own with an update: as a JSON object of numbers."""

import json
import math
from collections.abc import Mapping

from muster.common.bounds import INSTRUCTION_BYTES
from muster.common.errors import ConfigError


def metrics_to_bytes(metrics: Mapping[str, float]) -> bytes:
    """What a device reports; metrics that are not finite are left out.

    Raises:
        ConfigError: they are longer than the report of an update may be.
    """
    finite = {name: value for name, value in metrics.items() if math.isfinite(value)}
    report = json.dumps(finite).encode() if finite else b""
    if len(report) > INSTRUCTION_BYTES:
        raise ConfigError(
            f"task: metrics: devices report at most {INSTRUCTION_BYTES:,} bytes of them, found "
            f"{len(report):,} bytes of {len(finite):,} metrics; return fewer, or set "
            f"server.evaluate_on = 'server'"
        )
    return report


def metrics_from_bytes(report: bytes) -> dict[str, float]:
    """The metrics that a device reported, whatever it sent; what is no finite number is left
    out."""
    try:
        found = json.loads(report or b"{}")
    except (ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {
        name: float(value)
        for name, value in found.items()
        if isinstance(value, int | float) and abs(value) <= _LARGEST  # False for NaN
    }


_LARGEST = 1e300
"""Such numbers can be averaged without becoming infinite."""
