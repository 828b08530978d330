"""Models that read texts."""

from typing import TYPE_CHECKING, ClassVar, Literal

from muster.common.bounds import Depth, Width
from muster.tasks.model import Model

if TYPE_CHECKING:
    from torch import nn


class Lstm(Model):
    """An LSTM reads the tokens' embeddings, from both ends; a linear layer says what was read.

    Hochreiter and Schmidhuber, Long Short-Term Memory, Neural Computation 1997; from both ends as
    Graves and Schmidhuber, Neural Networks 2005.
    """

    tokens: ClassVar[bool] = True

    embedding: Width = 64
    """Length of a token's embedding."""

    hidden: Width = 64
    """Units of each direction."""

    layers: Depth = 1
    """LSTMs on top of one another."""

    bidirectional: bool = True
    """Whether a second LSTM reads from the end."""

    pooling: Literal["last", "max", "mean"] = "last"
    """What the linear layer sees: the states after the whole text, or the largest or mean value of
    every unit over the text."""

    def build(self, inputs: tuple[int, ...], outputs: int) -> "nn.Module":
        from muster.tasks.blocks import Reader

        return Reader(
            inputs[1],
            self.embedding,
            self.hidden,
            self.layers,
            self.bidirectional,
            self.pooling,
            outputs,
        )

    def parameters(self, inputs: tuple[int, ...], outputs: int) -> int:
        directions = 2 if self.bidirectional else 1
        found, width = inputs[1] * self.embedding, self.embedding
        for _ in range(self.layers):
            found += directions * 4 * self.hidden * (width + self.hidden + 2)
            width = directions * self.hidden
        return found + outputs * (width + 1)
