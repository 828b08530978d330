"""Measures the links of a run briefly before it begins, if its scenario says `verify = true`."""

from collections.abc import Sequence

from muster.common.clock import Clock
from muster.common.errors import RunFailed
from muster.common.events import Tell, Verified, Verifying
from muster.emulator.link_control.running_gateway import RunningGateway
from muster.emulator.verification.gateways import verify_gateways
from muster.emulator.verification.tables import describe

_SHORT_S = 1.0
"""Seconds over which a rate is measured."""


async def verify_before_run(
    gateways: Sequence[RunningGateway], clock: Clock, here: str, scenario: str, record: Tell
) -> None:
    """Measure all links briefly.

    Args:
        here: the address at which the gateways reach this process.
        record: records an event in the journal.

    Raises:
        RunFailed: a link does not match its settings.
    """
    found = await verify_gateways(
        gateways,
        clock,
        here=here,
        scenario=scenario,
        seconds=_SHORT_S,
        grpc=False,
        show=lambda step: record(Verifying(step)),
    )
    record(Verified(found.ok, len(found.rows)))
    if not found.ok:
        raise RunFailed(
            f"links do not match their settings (verify = true):\n{describe(found)}\n"
            f"`muster verify` measures them at length"
        )
