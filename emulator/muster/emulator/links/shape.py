"""The link of one device, with every setting in SI units."""

from muster.common.config import Section


class Shape(Section):
    """The link of one device as its gateway emulates it, with every setting in SI units."""

    down_bps: float | None = None
    up_bps: float | None = None
    rtt_s: float = 0.0
    jitter_s: float = 0.0
    fading: float = 0.0
    fading_time_s: float = 8.0
    fading_step_s: float = 0.25
    loss: float = 0.0
    trace_down: str | None = None
    trace_up: str | None = None
    trace_start_s: float = 0.0
    """Where in its traces the device begins when the gateway begins."""
