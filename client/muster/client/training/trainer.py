"""The trainers of devices: the result of local training, and the functions that users write.

A scenario names such a function in `[training]` as `trainer = "module:function"`.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeGuard

from pydantic import BeforeValidator, SerializeAsAny

from muster.common.causes import own_place
from muster.common.errors import MusterError, ProtocolError, TransportError
from muster.common.facts import NO_FACTS, Facts
from muster.common.plugins import Plugin
from muster.tasks.own import FunctionRegistry, Own

if TYPE_CHECKING:
    from collections.abc import Iterator

    from muster.common.tensors import Vector

log = logging.getLogger("muster.client")


@dataclass(frozen=True, slots=True)
class Trained:
    """The result of local training.

    Attributes:
        delta: trained − received parameters, or the mean minibatch gradient if the settings ask for
            it; float32, shape (parameters,), owned by the caller.
        examples: number of examples that the device holds.
        loss: mean minibatch loss over the local steps, with the task's ridge and without the
            proximal term; nan if there were no steps.
        train_steps: number of local steps taken.
        facts: what else is reported of the training.
        report: what the app of a hosted task reports to its strategy; empty without one.
        local: the device's local entries after training (`muster.tasks.parts.local_bytes`); empty
            if the model has none. It need not be given by a trainer of the user's own.
    """

    delta: Vector
    examples: int
    loss: float
    train_steps: int
    facts: Facts = NO_FACTS
    report: bytes = b""
    local: bytes = b""


class TrainingError(Exception):
    """Training raised an error. The device gives up the round, and takes part in later ones."""


@contextmanager
def training_errors(*clients: str) -> Iterator[None]:
    """Turn an error of the training of devices, whose code may be the user's, into
    `TrainingError`. Errors of what the server sent are not of that kind.

    Raises:
        TrainingError: the code inside raised an error.
    """
    try:
        yield
    except (ProtocolError, TransportError):
        raise
    except (Exception, SystemExit) as error:  # the user's code may call sys.exit
        log.exception("the training of %s failed", ", ".join(clients))
        why = str(error) if isinstance(error, MusterError) else f"{type(error).__name__}: {error}"
        why += f" ({place})" if (place := own_place(error)) else ""
        raise TrainingError(" ".join(why.split())) from error


class Trainer(Plugin):
    """A trainer, which replaces muster's own `train`.

    Attributes:
        wants: what it gets by name, besides the arguments of `train`: `state`, a dictionary that
            the device keeps from round to round (`muster.client.training.kept_state`), and
            `generator`, a `torch.Generator` whose seed follows from the run's, the client and the
            round.
    """

    wants: ClassVar[frozenset[str]] = frozenset()

    @abstractmethod
    def train(self, *given: Any, **named: Any) -> Trained:
        """Train, with the arguments and the result of `muster.client.training.local.train`."""


def keeps_state(trainer: Trainer | None) -> TypeGuard[Trainer]:
    """Whether a trainer keeps a state on the device from round to round."""
    return trainer is not None and "state" in trainer.wants


class OwnTrainer(Trainer, Own):
    """A function with the signature of `muster.client.training.local.train`, and its settings."""

    offered: ClassVar = ("state", "generator")

    given: ClassVar = ("task", "module", "received", "examples", "settings")
    named: ClassVar = ("seed", "client", "round", "base_version")

    def train(self, *given: Any, **named: Any) -> Trained:
        return self.function(*given, **named, **self.settings())  # type: ignore[no-any-return]


TRAINERS: FunctionRegistry[Trainer] = FunctionRegistry("trainer", "muster.trainers", {}, OwnTrainer)
AnyTrainer = Annotated[SerializeAsAny[Trainer], BeforeValidator(TRAINERS.parse)]
"""A trainer as a setting."""
