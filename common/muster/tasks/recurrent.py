"""Models that read texts."""

from typing import TYPE_CHECKING, ClassVar, Literal

from muster.common.bounds import Depth, Width
from muster.tasks.model import Model

if TYPE_CHECKING:
    from torch import nn


class Lstm(Model):
    """An LSTM that reads the embeddings of tokens from both ends, and a linear output layer.

    Hochreiter and Schmidhuber, Long Short-Term Memory, Neural Computation 1997. Reading from both
    ends is from Graves and Schmidhuber, Neural Networks 2005.
    """

    tokens: ClassVar[bool] = True

    embedding: Width = 64
    """Length of a token's embedding."""

    hidden: Width = 64
    """Number of units of each direction."""

    layers: Depth = 1
    """Number of LSTMs on top of one another."""

    bidirectional: bool = True
    """Whether a second LSTM reads the text from its end."""

    pooling: Literal["last", "max", "mean"] = "last"
    """Input of the linear layer. last: the states after the whole text. max, mean: the largest or
    the mean value of every unit over the text."""

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
