"""Central differential privacy: the weights that clip updates, and the noise of a version.

McMahan, Ramage, Talwar, Zhang, Learning Differentially Private Recurrent Language Models, ICLR
2018, Algorithm 1, with equal weights of devices and flat clipping.
"""

import math
from collections.abc import Sequence

import numpy as np

from muster.common.seeds import stream
from muster.common.tensors import Vector
from muster.server.aggregators import Aggregator, Contribution, State, Weighing
from muster.server.settings.privacy import Privacy


def clipped_weight(contribution: Contribution, clip: float) -> float:
    """The weight min(1, C/‖Δ‖), with which an update has a norm of at most C; less if the mode
    discounts the update because it is stale."""
    norm = math.sqrt(contribution.squared_norm)
    return _share(contribution) * (clip / norm if norm > clip else 1.0)


def clipped_weights(
    contributions: Sequence[Contribution], rule: Aggregator, state: State, clip: float
) -> Weighing:
    """The weights of a round, in place of those of a rule that takes a mean. All devices count
    alike, so the normaliser of a weighted mean is their number."""
    norms = np.sqrt([contribution.squared_norm for contribution in contributions])
    measured = {
        "clipped": int(np.count_nonzero(norms > clip)),
        "median_norm": float(np.median(norms)),
    }
    return Weighing(
        [clipped_weight(contribution, clip) for contribution in contributions],
        rule.normaliser(math.fsum(map(_share, contributions)), contributions),
        state,
        {"privacy": measured},
    )


def _share(contribution: Contribution) -> float:
    return min(1.0, contribution.discount)  # a mode of the user's own must not raise a weight


def noise_of(privacy: Privacy, seed: int, round: int, parameters: int) -> Vector:
    """The noise that is added to the sum of a round's clipped updates: N(0, z²·C²) in every
    coordinate.

    It follows from the seed and the round, so that a run can be repeated and resumed. Whoever knows
    the seed can take the noise away again.

    Returns:
        float32, shape (parameters,).
    """
    draws = stream(seed, "server noise", round)
    return draws.normal(0.0, privacy.deviation, parameters).astype(np.float32)
