"""The claims and checks of the study `fedplt` on static masks, and on damping.

They say what static masks do, not what the paper states of them. The paper: with constant η, D ends
below a floor that is proportional to η; with decaying η it falls as 1/t to the minimiser; ρ_k > 0
everywhere (assumption 6).
"""

from collections.abc import Iterator

from muster.studies.claims import Claim, at_most, greater, times
from muster.studies.fedplt.fleet import ROTATING, STATIC
from muster.studies.fedplt.static_fleet import (
    ALIKE,
    BLOCKS,
    DAMPED,
    DATA,
    SCHEDULES,
    SKEWED,
    TENSORS,
    UNDAMPED,
)
from muster.studies.fedplt.static_measures import FAR, StaticMeasures

_RATIO = {ALIKE: 3.0, SKEWED: 1.5}
"""At most; the paper has 4."""
_SLOPE = {ALIKE: -0.5, SKEWED: -0.2}
"""More than; the paper has -1."""
_NEAR = {ALIKE: 0.75, SKEWED: 0.5}


def static_claims(found: StaticMeasures) -> Iterator[Claim]:
    yield from _regimes(found)
    yield from _alignment(found)
    yield from _networks(found)
    yield from _boundary(found)


def _regimes(found: StaticMeasures) -> Iterator[Claim]:
    for data in DATA:
        yield at_most(
            f"static, {data} data: D with η = 0.04 as a multiple of D with a quarter of it (the "
            f"paper's floor is proportional to η: 4)",
            found.floor_ratio(data),
            _RATIO[data],
        ).because("Most of D is the distance of the limit from the minimiser, whatever η is.")
        yield greater(
            f"static, {data} data: with decaying η, the slope of log D on log t (the paper: -1)",
            found.slopes(data),
            _SLOPE[data],
        ).because("D does not fall below the squared distance of the limit.")
        yield at_most(
            f"static, {data} data: with decaying η the model ends near the solution of "
            f"Σ c_k m_k⊙∇F_k = 0: the distance to it, as a share of its distance to the minimiser",
            found.limit_share(data),
            _NEAR[data],
        ).because("There no entry moves in the mean.")


def _alignment(found: StaticMeasures) -> Iterator[Claim]:
    yield greater(
        f"assumption 6, alike data: far from the minimiser (at {FAR:g} times the distance of the "
        f"limit and more), the smallest ρ_k is above 0",
        found.far_alignment(ALIKE),
    ).because("Far away, every device's gradient points to the same minimiser.")
    for data in DATA:
        yield greater(
            f"assumption 6, {data} data: at the limit ρ_k is not above 0 for more than this share "
            f"of the devices",
            found.misaligned(data),
            by=0.1,
        ).because("Between its own minimiser and the common one, a device's gradient points away.")


def _networks(found: StaticMeasures) -> Iterator[Claim]:
    for data in DATA:
        yield greater(
            f"network, {data} data: with quarter blocks, static masks and ψ, the loss ends above "
            f"that of the untrained model, by more than",
            times(found.fall(part="network", data=data, masks=STATIC, server=UNDAMPED), -1),
            by=1.0,
        ).because("Blocks move at the same time against the same error.")
        for schedule in SCHEDULES:
            yield greater(
                f"network, {data} data: with {schedule} quarter blocks and a server's rate of "
                f"{DAMPED:g} the loss falls, by more than",
                found.fall(part="network", data=data, masks=schedule, server=DAMPED),
                by=1.0,
            ).because("Half of a step that goes too far by less than twice its length does not.")
        for trains in (f"{BLOCKS}, {STATIC}", f"{BLOCKS}, {ROTATING}", f"{TENSORS}, {STATIC}"):
            yield greater(
                f"network, {data} data: with devices of capacities 1, ½ and ¼ ({trains}) the loss "
                f"falls, by more than",
                found.fall(part="network", data=data, trains=f"1, ½, ¼: {trains}"),
                by=1.0,
            ).because("Devices that train the whole model damp those that train parts of it.")


def _boundary(found: StaticMeasures) -> Iterator[Claim]:
    quarters: dict[str, str | float] = {"part": "boundary", "share": 0.25}
    yield greater(
        "boundary: quarters of the coordinates and 50 local steps raise the loss above that of the "
        "untrained model, by more than",
        found.highest(**quarters, steps=50, server=UNDAMPED),
        by=1.0,
    ).because("The spectral radius of a round is about 3.")
    yield greater(
        f"boundary: with a server's rate of {DAMPED:g} the loss falls, by more than",
        found.fall(**quarters, steps=50, server=DAMPED),
        by=1.0,
    ).because("Half of the step has a spectral radius of about 1.")
    yield greater(
        "boundary: with 2 local steps the loss also falls, by more than",
        found.fall(**quarters, steps=2, server=UNDAMPED),
        by=1.0,
    ).because("After few steps, no part has moved so far that the others should have followed.")


def static_checks(found: StaticMeasures) -> Iterator[Claim]:
    yield at_most(
        "path: the largest difference of an entry of a model from the path that is computed from "
        "the paper's equations",
        found.path_error(),
        1e-4,
    )
