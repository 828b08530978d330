"""The contract of a model, and a model from a user's own function."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

from muster.common.errors import ConfigError
from muster.common.plugins import Plugin
from muster.tasks.own import Own

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn

    from muster.common.masks import UnitLayer


class Model(Plugin):
    """The settings of a model."""

    tokens: ClassVar[bool] = False
    """Whether the model reads the tokens of a text, int64 numbers, instead of float32 values."""

    tried: ClassVar[bool] = False
    """Whether the model is code of the user's own, which is tried before a run starts. A function
    of a module is so without this."""

    @abstractmethod
    def build(self, inputs: tuple[int, ...], outputs: int) -> nn.Module:
        """Return a module with initial parameters; random ones come from torch's generator.

        Args:
            inputs: shape of one example; for texts (tokens, vocabulary), where an example has shape
                (tokens,) and holds numbers below `vocabulary`.
            outputs: number of classes, or of predicted values.
        """

    def parameters(self, inputs: tuple[int, ...], outputs: int) -> int:
        """Return how many parameters `build` would make; 0 if that is unknown without building.

        Args:
            inputs, outputs: see `build`.
        """
        return 0

    def unit_layers(self, inputs: tuple[int, ...], outputs: int) -> Sequence[UnitLayer]:
        """Return the layers of hidden units of the module that `build` returns, for masks; none if
        the model has no hidden units.

        Args:
            inputs, outputs: see `build`.
        """
        return ()

    def refusal(self, inputs: tuple[int, ...], *, tokens: bool) -> str | None:
        """Return why the model cannot take such examples, or None if it can.

        Args:
            inputs: see `build`.
            tokens: whether the examples are texts.
        """
        if tokens and not self.tokens:
            return f"{self.kind} takes numbers, and the examples are texts; expected lstm"
        if self.tokens and not tokens:
            return f"{self.kind} reads texts, and the examples are numbers of shape {inputs}"
        return None


class OwnModel(Model, Own):
    """A model whose module a function `(inputs, outputs, **settings)` returns. Its layers of hidden
    units, for masks, are the module's attribute `unit_layers`, if it has one."""

    given: ClassVar = ("inputs", "outputs")

    def build(self, inputs: tuple[int, ...], outputs: int) -> nn.Module:
        from torch import nn

        module = self.function(inputs, outputs, **self.settings())
        if not isinstance(module, nn.Module):
            raise ConfigError(
                f"task.model: {self.kind} returned {module!r}, expected a torch.nn.Module"
            )
        return module

    def refusal(self, inputs: tuple[int, ...], *, tokens: bool) -> str | None:
        return None
