"""The model of a link, from which the server and a plan compute durations."""

from muster.common.lines import LinkModel
from muster.emulator.gateway.rates import mean_bps
from muster.emulator.links.shape import Shape


def model_of(shape: Shape) -> LinkModel:
    """The model of a device's link: mean rates, reduced by loss."""
    return LinkModel(
        down_bps=mean_bps(shape, "down"), up_bps=mean_bps(shape, "up"), rtt_s=shape.rtt_s
    )
