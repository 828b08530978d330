"""Coverage: which devices trained each coordinate of the model in a round.

Dabaja and El-Azouzi, Convergence Analysis of Federated Learning with Partial Parameter Training
(FedPLT), section 1.3: ψ_i = Σ_k n_k / Σ_k n_k·(m_k)_i, where (m_k)_i says whether client k trained
coordinate i. Here the sums run over the updates that count in the round, with any weights w_k.
"""

import math
from collections.abc import Sequence

import numpy as np

from muster.common.exact_sum import BLOCK, Doubles, ExactSum, ReadBlock, Term, require_finite
from muster.common.masks import Mask
from muster.common.tensors import Vector


class Coverage:
    """Σ w_k·m_k of a round: by coordinate, the weight of the updates that have it.

    Args:
        parameters: length of the model's vector.
    """

    def __init__(self, parameters: int) -> None:
        self._sum = ExactSum(parameters)
        self._weight = 0.0
        self._normaliser = 1.0
        self._compensates = True
        self._entries = 0

    def enter(
        self,
        masks: Sequence[Mask | None],
        weights: Sequence[float],
        normaliser: float,
        compensates: bool,
    ) -> None:
        """Enter the updates that count in a round, in place of those of the round before.

        Args:
            masks: of every update; None: it has the whole model.
            weights: of every update.
            normaliser: the divisor of the weighted sum if every update has the whole model.
            compensates: whether to multiply the sum by ψ.
        """
        self._sum.clear()
        self._sum.add_terms(
            [Term(_indicator(m), w, 1.0) for m, w in zip(masks, weights, strict=True)]
        )
        parameters = self._sum.parameters
        self._weight, self._normaliser = math.fsum(weights), normaliser
        self._compensates = compensates
        self._entries = sum(parameters if mask is None else mask.size for mask in masks)

    def block(self, start: int, stop: int) -> Doubles:
        """Σ w_k·m_k of coordinates [start, stop), at most BLOCK. The next call overwrites it."""
        return self._sum.block(start, stop)

    def divide(self, step: Doubles, covered: Doubles) -> None:
        """Divide a block of the weighted sum, in place, by the normaliser, and multiply it by ψ.

        Args:
            covered: the same block of the coverage.
        """
        if not self._compensates:
            step /= self._normaliser
        elif self._normaliser == self._weight:
            # ψ/normaliser is 1/Σ w·m. Dividing once gives the bits of training the whole model if
            # all devices send the same.
            np.divide(step, covered, out=step, where=covered > 0)
        else:
            psi = np.divide(self._weight, covered, out=np.zeros_like(covered), where=covered > 0)
            step *= psi / self._normaliser

    def shares(self) -> dict[str, float]:
        """The coverage of the round in numbers, for the ledger:

        - share: the share of the coordinates that at least one update has;
        - updates: the mean number of updates that have a coordinate;
        - largest_psi: the largest ψ of a coordinate that an update has; absent if there is none.
        """
        covered, least = 0, math.inf
        for start in range(0, self._sum.parameters, BLOCK):
            block = self.block(start, min(start + BLOCK, self._sum.parameters))
            there = block[block > 0]
            covered += len(there)
            least = min(least, float(there.min(initial=math.inf)))
        found = {
            "share": covered / self._sum.parameters,
            "updates": self._entries / self._sum.parameters,
        }
        return {**found, "largest_psi": self._weight / least} if covered else found


def _indicator(mask: Mask | None) -> ReadBlock:
    """Reads 1 where a coordinate is in the mask, and 0 elsewhere."""

    def read(start: int, stop: int) -> Vector:
        if mask is None:
            return np.ones(stop - start, np.float32)
        return mask.within(start, stop).astype(np.float32)

    return read


def apply_covered(model: Vector, total: ExactSum, coverage: Coverage, scale: float) -> Vector:
    """Return model + scale·ψ⊙total/normaliser, in float64, rounded once per entry. An entry that no
    update has keeps its bits.

    Raises:
        Diverged: an entry is not a finite float32.
    """
    result = np.empty_like(model)
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, len(model), BLOCK):
            stop = min(start + BLOCK, len(model))
            step, covered = total.block(start, stop), coverage.block(start, stop)
            if scale != 1.0:
                step *= scale
            coverage.divide(step, covered)
            old = model[start:stop]
            step += old
            result[start:stop] = step
            np.copyto(result[start:stop], old, where=covered == 0)
    require_finite(result)
    return result
