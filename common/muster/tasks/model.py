"""The contract of a model, and a user's own function as one."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

from muster.common.errors import ConfigError
from muster.common.plugins import Plugin
from muster.tasks.own import Own

if TYPE_CHECKING:
    from torch import nn


class Model(Plugin):
    """Settings of a model."""

    tokens: ClassVar[bool] = False
    """Whether it reads the tokens of a text, int64 numbers, and not float32 values."""

    @abstractmethod
    def build(self, inputs: tuple[int, ...], outputs: int) -> nn.Module:
        """Return a module with initial parameters, drawn from torch's generator where drawn.

        Args:
            inputs: shape of one example; of a text (tokens, vocabulary), where an example has
                shape (tokens,) and holds numbers below `vocabulary`.
            outputs: classes, or predicted values.
        """

    def parameters(self, inputs: tuple[int, ...], outputs: int) -> int:
        """Return how many parameters `build` would make; 0 where only building it can tell.

        Args:
            inputs, outputs: as for `build`.
        """
        return 0

    def refusal(self, inputs: tuple[int, ...], *, tokens: bool) -> str | None:
        """Return why the model cannot take such examples, or None if it can.

        Args:
            inputs: as for `build`.
            tokens: whether they are texts.
        """
        if tokens and not self.tokens:
            return f"{self.kind} takes numbers, and the examples are texts; expected lstm"
        if self.tokens and not tokens:
            return f"{self.kind} reads texts, and the examples are numbers of shape {inputs}"
        return None


class OwnModel(Model, Own):
    """A module that a function `(inputs, outputs, **settings)` returns."""

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
