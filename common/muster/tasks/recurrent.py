"""Models that read texts."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

from muster.common.bounds import Depth, Width
from muster.common.masks import UnitAxis, UnitLayer
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

    def unit_layers(self, inputs: tuple[int, ...], outputs: int) -> Sequence[UnitLayer]:
        directions = ["", "_reverse"] if self.bidirectional else [""]
        readers = [UnitAxis(tensor=f"lstm.weight_ih_l0{each}", axis=1) for each in directions]
        axes = [UnitAxis(tensor="embedding.weight", axis=1), *readers]
        layers = [UnitLayer(name="embedding", units=self.embedding, axes=axes)]
        for number in range(self.layers):
            following = [f"lstm.weight_ih_l{number + 1}{each}" for each in directions]
            if number == self.layers - 1:
                following = ["output.weight"]
            for place, direction in enumerate(directions):
                suffix, start = f"_l{number}{direction}", place * self.hidden
                gates = [f"lstm.{part}{suffix}" for part in _GATES]
                axes = [
                    *(UnitAxis(tensor=tensor, axis=0, repeats=4) for tensor in gates),
                    UnitAxis(tensor=f"lstm.weight_hh{suffix}", axis=1),
                    *(UnitAxis(tensor=tensor, axis=1, start=start) for tensor in following),
                ]
                layers.append(UnitLayer(name=f"lstm{suffix}", units=self.hidden, axes=axes))
        return layers


_GATES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
"""The tensors of an LSTM that hold the four gates one after the other."""
