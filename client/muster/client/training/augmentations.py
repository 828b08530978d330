"""Augmentations: random changes of the examples of a minibatch, by name. They act in training only.

All draws of a device in a round come from one generator, whose seed follows from the run's, the
device and the round, in the order of the minibatches. So a device that was killed draws the same
again. This module does not import torch, so that scenarios can be read without it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, SerializeAsAny

from muster.common.errors import ConfigError
from muster.common.plugins import Plugin
from muster.tasks.inputs import kind_of
from muster.tasks.own import FunctionRegistry, Own

if TYPE_CHECKING:
    from torch import Generator, Tensor

    from muster.tasks.inputs import Tensors

Pixels = Annotated[int, Field(ge=1, le=1_000)]


class Augmentation(Plugin):
    """An augmentation."""

    pictures: ClassVar[bool] = True
    """Whether it takes pictures only."""

    @abstractmethod
    def of(self, x: Tensor, random: Generator) -> Tensor:
        """Return changed examples, in the shape of `x`, which stays as it is.

        Args:
            x: floats; pictures have the shape (examples, channels, height, width).
            random: a generator of the CPU, whatever the device of `x`.
        """

    def applied(self, x: Tensors, random: Generator) -> Tensors:
        """Return the changed inputs of a minibatch.

        Raises:
            ConfigError: it does not fit such inputs.
        """
        if isinstance(x, Mapping) or not x.is_floating_point():
            raise self._unfit("one input of floats", x)
        if not self.pictures:
            return self.of(x, random)
        if x.ndim not in (3, 4):
            raise self._unfit("pictures of shape (height, width) or (channels, height, width)", x)
        return self.of(x.reshape(len(x), -1, *x.shape[-2:]), random).reshape(x.shape)

    def _unfit(self, expected: str, x: Tensors) -> ConfigError:
        return ConfigError(
            f"training.augmentations: {self.kind}: expected {expected}, found a minibatch of "
            f"{kind_of(x)}; leave it out, or write a function of your own"
        )


class Crop(Augmentation):
    """Pictures get a border of zeros, from which a part of their old size is cut at random."""

    padding: Pixels = 4
    """Width of the border in pixels, on each side."""

    def of(self, x: Tensor, random: Generator) -> Tensor:
        import torch
        from torch.nn.functional import pad

        count, _, height, width = x.shape
        bordered = pad(x, [self.padding] * 4)
        top, left = torch.randint(2 * self.padding + 1, (2, count, 1), generator=random)
        rows = (top + torch.arange(height)).to(x.device)[:, :, None]
        columns = (left + torch.arange(width)).to(x.device)[:, None, :]
        pictures = torch.arange(count, device=x.device)[:, None, None]
        return bordered.permute(0, 2, 3, 1)[pictures, rows, columns].permute(0, 3, 1, 2)


class Flip(Augmentation):
    """Pictures are mirrored from left to right at random."""

    probability: Annotated[float, Field(gt=0, le=1)] = 0.5
    """How likely each picture is mirrored."""

    def of(self, x: Tensor, random: Generator) -> Tensor:
        import torch

        mirrored = torch.rand(len(x), 1, 1, 1, generator=random) < self.probability
        return torch.where(mirrored.to(x.device), x.flip(3), x)


class Erase(Augmentation):
    """A square of each picture becomes zeros; its centre is drawn, so a part may lie outside.

    DeVries and Taylor, Improved Regularization of Convolutional Neural Networks with Cutout, 2017,
    https://arxiv.org/abs/1708.04552
    """

    size: Pixels = 8
    """Pixels of a side of the square."""

    def of(self, x: Tensor, random: Generator) -> Tensor:
        import torch

        inside = []
        for side in x.shape[2:]:
            first = torch.randint(side, (len(x), 1), generator=random) - self.size // 2
            place = torch.arange(side)
            inside.append((place >= first) & (place < first + self.size))
        square = inside[0][:, None, :, None] & inside[1][:, None, None, :]
        return x.masked_fill(square.to(x.device), 0.0)


class Noise(Augmentation):
    """Every number gets Gaussian noise."""

    pictures: ClassVar = False

    deviation: Annotated[float, Field(gt=0, le=1e6)] = 0.1
    """Standard deviation of the noise."""

    def of(self, x: Tensor, random: Generator) -> Tensor:
        import torch

        noise = torch.empty(x.shape, dtype=x.dtype).normal_(0, self.deviation, generator=random)
        return x + noise.to(x.device)


class OwnAugmentation(Augmentation, Own):
    """A function `(x, generator, **settings)` that returns the changed inputs of a minibatch: a
    tensor with a row for every example, or tensors by name, as x is."""

    pictures: ClassVar = False
    given: ClassVar = ("x", "generator")

    def of(self, x: Tensor, random: Generator) -> Tensor:
        raise NotImplementedError

    def applied(self, x: Tensors, random: Generator) -> Tensors:
        import torch

        count = len(_parts(x)[0])
        # A minibatch of all examples shares their memory, which the function may not change.
        copy = {k: v.clone() for k, v in x.items()} if isinstance(x, Mapping) else x.clone()
        found: Any = self.function(copy, random, **self.settings())
        for part in _parts(found):
            if not isinstance(part, torch.Tensor) or part.shape[:1] != (count,):
                raise ConfigError(
                    f"training.augmentations: {self.kind}: expected a tensor with a row for each "
                    f"of the {count} examples, found {kind_of(part)}"
                )
        return found  # type: ignore[no-any-return]


def _parts(x: Any) -> list[Any]:
    return list(x.values()) if isinstance(x, Mapping) else [x]


BUILT_IN: dict[str, type[Augmentation]] = {
    "crop": Crop,
    "erase": Erase,
    "flip": Flip,
    "noise": Noise,
}
AUGMENTATIONS: FunctionRegistry[Augmentation] = FunctionRegistry(
    "augmentation", "muster.augmentations", BUILT_IN, OwnAugmentation
)

AnyAugmentations = Annotated[
    list[Annotated[SerializeAsAny[Augmentation], BeforeValidator(AUGMENTATIONS.parse)]],
    Field(max_length=100),
]
"""Augmentations as a setting: names, or tables with their `kind` and settings."""
