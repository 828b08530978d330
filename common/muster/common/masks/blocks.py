"""Masks of hidden units.

Dabaja and El-Azouzi, Convergence Analysis of Federated Learning with Partial Parameter Training
(FedPLT), section 1.3: each client trains blocks of the units of each layer.
"""

import numpy as np

from muster.common.errors import ConfigError
from muster.common.masks.contract import Masking, MaskMaker, budget
from muster.common.masks.ring import RingMaker
from muster.common.masks.units import Layout
from muster.common.seeds import BoolArray, IntArray


class Blocks(Masking):
    """Hidden units with what belongs to them: units of perceptrons, channels of convolutions, cells
    of an LSTM with all their gates, dimensions of an embedding.

    A unit owns its incoming weights, its bias, and its weights to the outputs. A weight between two
    hidden units belongs to the unit that it feeds, so units have no weights in common. Every device
    trains what belongs to no unit, for example the bias of the outputs; it counts towards the
    capacity. A mask has about the same share of the units of every layer.
    """

    def maker(self, layout: Layout, capacity: float, seed: int) -> MaskMaker:
        require_units(layout, self.kind)
        costs = layout.owned
        rest = layout.parameters - int(costs.sum())
        most = budget(layout, capacity) - rest
        if (costs > most).any():
            least = (rest + costs.max()) / layout.parameters
            raise ConfigError(
                f"the capacity {capacity:g} does not hold every unit together with the parameters "
                f"that belong to no unit; expected at least {least:.4g}, or another kind of mask"
            )
        return _BlockMaker(layout, costs, most, rest, self.schedule, seed)


class _BlockMaker(RingMaker):
    def __init__(
        self,
        layout: Layout,
        costs: IntArray,
        budget: int,
        rest: int,
        schedule: str,
        seed: int,
    ) -> None:
        # Units of all layers take turns, so that a window has its share of every layer.
        layers = [(np.arange(units) + 0.5) / units for units in layout.layer_units]
        order = np.argsort(np.concatenate(layers), kind="stable")
        super().__init__(order, costs, budget, schedule, seed, always=rest)
        self._layout = layout

    def _chosen(self, items: IntArray) -> BoolArray:
        return self._layout.owned_by(items)


def require_units(layout: Layout, kind: str) -> None:
    """Raise a ConfigError unless the model declares hidden units."""
    if not layout.layers:
        raise ConfigError(
            f"{kind!r} masks take hidden units, and the model declares none; expected a model with "
            f"hidden layers such as mlp, cnn, resnet or lstm, a model of your own whose module has "
            f"`unit_layers`, or the kind 'tensors' or 'random'"
        )
