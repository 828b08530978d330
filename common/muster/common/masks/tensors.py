"""Masks of whole tensors.

Dabaja and El-Azouzi, Convergence Analysis of Federated Learning with Partial Parameter Training
(FedPLT), section 1.3: each client trains assigned layers of the model.
"""

import numpy as np

from muster.common.errors import ConfigError
from muster.common.masks.contract import Masking, MaskMaker, budget
from muster.common.masks.ring import RingMaker
from muster.common.masks.units import Layout
from muster.common.seeds import BoolArray, IntArray


class Tensors(Masking):
    """Whole tensors: as many neighbours in the order of the model as fit into the capacity.

    No device of the group trains a tensor that is larger than its capacity. If no other group
    trains it either, it keeps its initial values.
    """

    def maker(self, layout: Layout, capacity: float, seed: int) -> MaskMaker:
        most = budget(layout, capacity)
        costs = np.array([tensor.size for tensor in layout.schema.tensors])
        fitting = np.flatnonzero((costs <= most) & (costs > 0))
        if not len(fitting):
            least = costs[costs > 0].min() / layout.parameters
            raise ConfigError(
                f"no tensor fits into the capacity {capacity:g}; expected at least {least:.4g}, "
                f"the share of the smallest tensor, or another kind of mask"
            )
        return _TensorMaker(layout, fitting, costs, most, self.schedule, seed)


class _TensorMaker(RingMaker):
    def __init__(
        self,
        layout: Layout,
        order: IntArray,
        costs: IntArray,
        budget: int,
        schedule: str,
        seed: int,
    ) -> None:
        super().__init__(order, costs, budget, schedule, seed)
        self._layout = layout

    def _chosen(self, items: IntArray) -> BoolArray:
        chosen = np.zeros(self._layout.parameters, np.bool_)
        for item in items:
            chosen[self._layout.starts[item] : self._layout.starts[item + 1]] = True
        return chosen
