"""The sizes of the study `correlated`, in full and quick."""

from typing import NamedTuple


class CorrelatedSize(NamedTuple):
    """The number of rounds of a study, and the margins of its claims: a shorter study needs wider
    margins.

    Attributes:
        rounds: rounds of the classifiers and the surrogate.
        theorem_rounds: rounds of the long runs for the theorems.
        distance: largest distance of the surrogate to its expected end point, as a share of the
            distance between the end points of the schemes. Below ½, the surrogate is nearer to its
            own end point than to that of the other scheme.
        floor: margin of the biased surrogate's ‖∇F‖ at the end, as a share of its expected value.
        limited_share: largest |ĉ/c − 1| with a limit, with which the middle group is seldom heard.
            If it is never heard, the mean over the groups is at least ⅓.
        empty: margin of the share of empty rounds.
    """

    rounds: int
    theorem_rounds: int
    distance: float
    floor: float
    limited_share: float
    empty: float


FULL = CorrelatedSize(1500, 1500, 0.25, 0.2, 0.12, 0.025)
QUICK = CorrelatedSize(300, 900, 0.4, 0.35, 0.25, 0.04)
