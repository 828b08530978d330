"""The texts of the study `correlated`: what stands beside its tables,
and what a reader has to know."""

from collections.abc import Iterator

from muster.studies.correlated import fleet, measures
from muster.studies.correlated.fleet import LITERAL, TransferLimit
from muster.studies.correlated.measures import CorrelatedMeasures, mean

NO_MNIST = (
    "Without a data directory, scikit-learn's digits of 8×8 pixels replace MNIST: an MLP of "
    "64-4-3, and 34 examples per device."
)
LOSSES = (
    "Mean over all devices, each with the same weight. The mean over rounds is the area under the "
    "curve. A limit is named by what happens if more than M_max devices of a group take part: with "
    "collide, none of the group gets through; with subset, M_max of them do."
)
DIGITS = "Final loss on the data of each group's devices, and means of all rounds."
SHARES = (
    "c of a device of each group: the exact value, and the final estimate of the debiased scheme. "
    "The table also has the weights of the groups in a plain mean over the participants; equal "
    "weights of devices would give .3, .4 and .3."
)

THEOREMS = (
    "Means of ‖∇F‖² over the rounds, in units of the bias term ‖∇F − Σ c_m ∇F_m‖² at the point "
    "where biased ends. Expected and the bound follow from exact constants; for debiased they are "
    "those of the exact c. The printed bound is the paper's, with D, σ² and δ for its constants."
)


def notes(found: CorrelatedMeasures) -> Iterator[str]:
    """Sentences that a reader of the results has to know."""
    literal, fewer = fleet.exact(LITERAL), fleet.exact(TransferLimit("collide", 2))
    yield (
        f"The classifier can serve all three digits at once, so smaller weights for some of them "
        f"make it slow rather than wrong: the biased loss still falls at the end (by "
        f"{mean(found.of(measures.last_fifth, 'biased')):.0%} in the last fifth of the rounds). "
        f"The claim that biased ends above the others holds for this number of rounds only. The "
        f"surrogate cannot serve all groups, so it shows the bias that remains."
    )
    yield (
        f"If more than M_max devices collide, the bias is reversed. When the four devices of the "
        f"middle group take part, more than {LITERAL.slots} of them are nearly always available. "
        f"This group, which took part most often, therefore weighs {literal.biased[1]:.3f} instead "
        f"of {fleet.exact().biased[1]:.3f}, and {literal.empty:.0%} of the rounds are empty."
    )
    yield (
        f"If more than two devices collide, c of the middle group is {fewer.shares[1]:.4f}, below "
        f"δ = {fleet.DELTA:g}: its weight is capped, and no number of rounds removes the bias."
    )
    yield (
        f"An empty round counts in ĉ. Leaving it out would make every ĉ larger by "
        f"{1 / (1 - fleet.exact().empty) - 1:.0%}."
    )
    yield (
        "ĉ includes the current round and is noisy at first, so the first weights are noisy too. "
        "This is one reason why debiased is slower than unbiased. The paper does not state the "
        "size of a minibatch; here it is 32."
    )
