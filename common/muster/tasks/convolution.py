"""Convolutional models, for pictures."""

from collections import OrderedDict
from collections.abc import Sequence
from math import gcd
from typing import TYPE_CHECKING

from muster.common.bounds import Depth, Width
from muster.common.masks import UnitAxis, UnitLayer
from muster.tasks.model import Model

if TYPE_CHECKING:
    from torch import nn


class _Pictures(Model):
    """A model of pictures, shape (height, width) or (channels, height, width)."""

    def refusal(self, inputs: tuple[int, ...], *, tokens: bool) -> str | None:
        if reason := super().refusal(inputs, tokens=tokens):
            return reason
        if len(inputs) not in (2, 3) or min(inputs[-2:]) < 4:
            return (
                f"{self.kind} takes pictures of shape (height, width) or (channels, height, "
                f"width), at least 4 by 4, found examples of shape {inputs}"
            )
        return None


class Cnn(_Pictures):
    """Two 5×5 convolutions of 32 and 64 channels with 2×2 max pooling, then 512 hidden units.

    The CNN of McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized
    Data, AISTATS 2017, section 3: 1,663,370 parameters for pictures of 28×28 pixels and 10 labels.
    """

    channels: Width = 32
    """Number of channels of the first convolution; the second has twice as many."""

    hidden: Width = 512
    """Number of units of the fully connected layer."""

    def build(self, inputs: tuple[int, ...], outputs: int) -> "nn.Module":
        from torch import nn

        height, width = inputs[-2:]
        return nn.Sequential(
            OrderedDict(
                planes=_planes(inputs),
                convolution1=nn.Conv2d(_colours(inputs), self.channels, 5, padding=2),
                # Pooling before the activation gives the same result with a quarter of the work.
                pool1=nn.MaxPool2d(2),
                activation1=nn.ReLU(),
                convolution2=nn.Conv2d(self.channels, 2 * self.channels, 5, padding=2),
                pool2=nn.MaxPool2d(2),
                activation2=nn.ReLU(),
                flatten=nn.Flatten(),
                hidden=nn.Linear(2 * self.channels * (height // 4) * (width // 4), self.hidden),
                activation3=nn.ReLU(),
                output=nn.Linear(self.hidden, outputs),
            )
        )

    def parameters(self, inputs: tuple[int, ...], outputs: int) -> int:
        height, width = inputs[-2:]
        flat = 2 * self.channels * (height // 4) * (width // 4)
        convolutions = self.channels * (25 * _colours(inputs) + 1)
        convolutions += 2 * self.channels * (25 * self.channels + 1)
        return convolutions + self.hidden * (flat + 1) + outputs * (self.hidden + 1)

    def unit_layers(self, inputs: tuple[int, ...], outputs: int) -> Sequence[UnitLayer]:
        height, width = inputs[-2:]
        pixels = (height // 4) * (width // 4)  # of a channel after both poolings
        return [
            _layer("convolution1", self.channels, UnitAxis(tensor="convolution2.weight", axis=1)),
            _layer(
                "convolution2",
                2 * self.channels,
                UnitAxis(tensor="hidden.weight", axis=1, width=pixels),
            ),
            _layer("hidden", self.hidden, UnitAxis(tensor="output.weight", axis=1)),
        ]


class Resnet(_Pictures):
    """A small residual network with group normalisation, which keeps no running means.

    The network is from He et al., Deep Residual Learning for Image Recognition, CVPR 2016, section
    4.2: a 3×3 convolution, three stages of blocks of two 3×3 convolutions, and global average
    pooling. Each stage after the first has half the resolution and twice the channels. Group
    normalisation (Wu and He, ECCV 2018) replaces batch normalisation, as Hsieh et al., The Non-IID
    Data Quagmire of Decentralized Machine Learning, ICML 2020, found right for federated learning.
    """

    width: Width = 16
    """Number of channels of the first stage."""

    blocks: Depth = 1
    """Number of blocks of each stage; He et al. have 3 in their network of 20 layers."""

    groups: Width = 4
    """Number of groups of channels in a normalisation. If it does not divide the number of
    channels, the greatest common divisor of both is used."""

    def build(self, inputs: tuple[int, ...], outputs: int) -> "nn.Module":
        from torch import nn

        from muster.tasks.blocks import Block

        layers: OrderedDict[str, nn.Module] = OrderedDict(
            planes=_planes(inputs),
            stem=nn.Conv2d(_colours(inputs), self.width, 3, padding=1, bias=False),
            norm=nn.GroupNorm(gcd(self.groups, self.width), self.width),
            activation=nn.ReLU(),
        )
        before = self.width
        for stage in range(3):
            width = self.width << stage
            for number in range(self.blocks):
                stride = 2 if stage and not number else 1
                name = f"block{stage + 1}_{number + 1}"
                layers[name] = Block(before, width, stride, gcd(self.groups, width))
                before = width
        layers["pool"] = nn.AdaptiveAvgPool2d(1)
        layers["flatten"] = nn.Flatten()
        layers["output"] = nn.Linear(before, outputs)
        return nn.Sequential(layers)

    def parameters(self, inputs: tuple[int, ...], outputs: int) -> int:
        found, before = self.width * (9 * _colours(inputs) + 2), self.width
        for stage in range(3):
            width = self.width << stage
            # Two convolutions with their normalisations. The first block of a stage may differ.
            found += (self.blocks - 1) * (18 * width + 4) * width
            found += (9 * (before + width) + 4) * width + (before * width if stage else 0)
            before = width
        return found + outputs * (before + 1)

    def unit_layers(self, inputs: tuple[int, ...], outputs: int) -> Sequence[UnitLayer]:
        # The blocks of a stage add to the same channels, which are therefore one layer.
        stages = [[*_outgoing("stem.weight", "norm.weight", "norm.bias")], [], []]
        inner = []
        before = 0
        for stage in range(3):
            for number in range(self.blocks):
                name = f"block{stage + 1}_{number + 1}"
                first = [
                    f"{name}.convolution1.weight",
                    f"{name}.norm1.weight",
                    f"{name}.norm1.bias",
                ]
                last = [f"{name}.convolution2.weight", f"{name}.norm2.weight", f"{name}.norm2.bias"]
                stages[before].append(UnitAxis(tensor=first[0], axis=1))
                stages[stage] += _outgoing(*last)
                if stage != before:
                    stages[stage] += _outgoing(f"{name}.shortcut.weight")
                    stages[before].append(UnitAxis(tensor=f"{name}.shortcut.weight", axis=1))
                axes = [*_outgoing(*first), UnitAxis(tensor=last[0], axis=1)]
                inner.append(UnitLayer(name=name, units=self.width << stage, axes=axes))
                before = stage
        stages[2].append(UnitAxis(tensor="output.weight", axis=1))
        outer = [
            UnitLayer(name=f"stage{stage + 1}", units=self.width << stage, axes=axes)
            for stage, axes in enumerate(stages)
        ]
        return [*outer, *inner]


def _outgoing(*tensors: str) -> Sequence[UnitAxis]:
    """The first axes of tensors, which are those of a layer's outputs."""
    return [UnitAxis(tensor=tensor, axis=0) for tensor in tensors]


def _layer(name: str, units: int, after: UnitAxis) -> UnitLayer:
    """The units of a module with a weight and a bias.

    Args:
        after: where the next module reads them.
    """
    return UnitLayer(
        name=name, units=units, axes=[*_outgoing(f"{name}.weight", f"{name}.bias"), after]
    )


def _colours(inputs: tuple[int, ...]) -> int:
    return inputs[0] if len(inputs) == 3 else 1


def _planes(inputs: tuple[int, ...]) -> "nn.Module":
    """A module that gives grey pictures a dimension for their one channel."""
    from torch import nn

    return nn.Identity() if len(inputs) == 3 else nn.Unflatten(1, (1, inputs[0]))
