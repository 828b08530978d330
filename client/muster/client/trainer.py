"""A user's own local training, named in `[training]` as `trainer = "module:function"`."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import BeforeValidator, SerializeAsAny

from muster.common.plugins import Plugin
from muster.tasks.own import FunctionRegistry, Own

if TYPE_CHECKING:
    from muster.client.training import Trained


class Trainer(Plugin):
    """A trainer, which replaces muster's own `train`."""

    @abstractmethod
    def train(self, *given: Any, **named: Any) -> Trained:
        """Train, with the arguments and the result of `muster.client.training.train`."""


class OwnTrainer(Trainer, Own):
    """A function with the signature of `muster.client.training.train`, and settings of its own."""

    given: ClassVar = ("task", "module", "received", "examples", "settings")
    named: ClassVar = ("seed", "client", "round", "base_version")

    def train(self, *given: Any, **named: Any) -> Trained:
        return self.function(*given, **named, **self.settings())  # type: ignore[no-any-return]


TRAINERS: FunctionRegistry[Trainer] = FunctionRegistry("trainer", "muster.trainers", {}, OwnTrainer)
AnyTrainer = Annotated[SerializeAsAny[Trainer], BeforeValidator(TRAINERS.parse)]
"""A trainer as a setting."""
