"""Rational devices: a device keeps a model of its own, and leaves while the server's serves it no
better.

A device decides in these steps: it gets the model of a call, measures it and its own model on its
validation examples, and accepts or declines. In either case it then trains: from the received model
if it accepted, else from its own. The result is its own model for the next round. Only a device
that accepted sends what training changed.

Yashwanth et al., Federated Learning by Utility-Constrained Stochastic Aggregation for Improving
Rational Participation, 2026, section 3.1 and Algorithm 1. https://arxiv.org/abs/2605.18020
"""

import math
import struct
from typing import Any, NamedTuple

import numpy as np
from torch import nn

from muster.client.device.utility import fitted, r_squared, without
from muster.client.life.participation import UtilitySettings
from muster.common.errors import ConfigError
from muster.common.exchange import LARGEST_UTILITY, Call, UtilityCurve, Valuation
from muster.common.seeds import FloatArray, stream
from muster.common.tensors import WIRE, Vector
from muster.tasks.parts import load_vector
from muster.tasks.task import Examples, OpenTask

_HEAD = struct.Struct("<?b?6d?4d3?Qd")
"""Whether the device accepted; whether the model was a gain (-1: not known); whether it was forced;
the numbers of `_NUMBERS` (NaN: None); whether there is a curve, and the curve; whether there are
the three vectors of its part, and the version of it; the cost."""

_NUMBERS = (
    "received_accuracy",
    "own_accuracy",
    "fitted_utility",
    "r_squared",
    "received_loss",
    "own_loss",
)

_COIN = 0.5
"""Probability with which a device accepts if test = "coin"."""


class ModelPart(NamedTuple):
    """A device's part in a version of the model: θ = Σ α_k·m_k.

    Attributes:
        version: the number of the version.
        model: θ; this and the next two are float32, shape (parameters,).
        sent: what is in the model of the device: its last update that counted; if the aggregator
            retains models, the model that it has sent with it. None: nothing.
        contribution: m, the version before plus the last update, or the last model; the version
            before if nothing was sent. None: the device does not know the version before, because
            it was not called for it.
    """

    version: int
    model: Vector
    sent: Vector | None
    contribution: Vector | None

    @classmethod
    def of(cls, call: Call, model: Vector, before: "ModelPart | None") -> "ModelPart":
        """The part in the version of a call.

        Args:
            before: the part in the version of the device's last call; None: there was none.
        """
        version = call.base_version
        if before is None:
            return cls(version, model, None, None if version else model)
        if before.version == version:  # the round between made no version
            return before
        sent, contribution = before.sent, None
        if call.retains_model and sent is not None:
            contribution = sent
        elif before.version == version - 1:
            contribution = before.model if sent is None else before.model + sent
        return cls(version, model, sent, contribution)


class ModelJudgement(NamedTuple):
    """A rational device's decision in a round, and its own model afterwards.

    Attributes:
        own: parameters of its own model, float32, shape (parameters,).
        part: its part in the received model; None if the aggregator announces no weights.
        cost: accuracy that the transfers of the round cost the device.
    """

    accepts: bool
    valuation: Valuation
    own: Vector
    part: ModelPart | None = None
    cost: float = 0.0

    def to_bytes(self) -> bytes:
        """The bytes that the device's memory keeps."""
        valuation, part, curve = self.valuation, self.part, self.valuation.curve
        gains = -1 if valuation.gains is None else int(valuation.gains)
        optional = (getattr(valuation, name) for name in _NUMBERS)
        numbers = (math.nan if number is None else number for number in optional)
        known = [False] * 3 if part is None else [vector is not None for vector in part[1:]]
        vectors = () if part is None else (vector for vector in part[1:] if vector is not None)
        head = _HEAD.pack(
            self.accepts,
            gains,
            valuation.forced,
            *numbers,
            curve is not None,
            *(curve or (math.nan,) * 4),
            *known,
            0 if part is None else part.version,
            self.cost,
        )
        return head + b"".join(vector.astype(WIRE).tobytes() for vector in (self.own, *vectors))

    @classmethod
    def from_bytes(cls, kept: bytes) -> "ModelJudgement":
        """The judgement that `to_bytes` wrote."""
        accepts, gains, forced, *rest = _HEAD.unpack_from(kept)
        optional, (curved, *four, partial, sent, contributed, version, cost) = rest[:6], rest[6:]
        fields: dict[str, Any] = {
            name: None if math.isnan(number) else number
            for name, number in zip(_NUMBERS, optional, strict=True)
        }
        fields |= {"gains": None if gains < 0 else bool(gains), "forced": forced}
        valuation = Valuation(curve=UtilityCurve(*four) if curved else None, **fields)
        kinds = True, partial, sent, contributed
        rows = iter(np.frombuffer(kept, WIRE, offset=_HEAD.size).reshape(sum(kinds), -1))
        own, model, *others = (next(rows) if there else None for there in kinds)
        assert own is not None
        part = None if model is None else ModelPart(version, model, *others)
        return cls(accepts, valuation, own, part, cost)

    @property
    def sent(self) -> Vector | None:
        """See `ModelPart.sent`; None without a part."""
        return None if self.part is None else self.part.sent

    def having(self, sent: Vector | None) -> "ModelJudgement":
        """The same judgement of a device that has something else in the model."""
        return self if self.part is None else self._replace(part=self.part._replace(sent=sent))


def require_validation(validation: Examples, client: str) -> None:
    """Raise ConfigError unless a rational device has examples on which it can judge models."""
    if not len(validation):
        raise ConfigError(
            f"task.validation_ratio: a rational device needs at least one validation example, but "
            f"{client} holds out none; raise task.validation_ratio, or give the devices more "
            f"examples"
        )


class ModelJudge:
    """How one rational device judges models.

    Args:
        module: scratch module of the task; it gets the parameters that are measured.
        validation: the device's validation examples.
        seed: the scenario's, for decisions by chance.

    Raises:
        ConfigError: the device has no validation examples.
    """

    def __init__(
        self,
        settings: UtilitySettings,
        task: OpenTask,
        module: nn.Module,
        validation: Examples,
        client: str,
        seed: int = 0,
    ) -> None:
        require_validation(validation, client)
        self._settings = settings
        self._task = task
        self._module = module
        self._validation = validation
        self._client = client
        self._seed = seed

    def decide(
        self, call: Call, received: Vector, before: bytes, metered_bytes: int = 0
    ) -> ModelJudgement:
        """Decide about the model of a call. A device without a model of its own accepts.

        Args:
            received: float32, shape (parameters,).
            before: the device's judgement before the round, as bytes; empty in its first round.
            metered_bytes: bytes that the device transfers in the round for money.
        """
        cost = self._settings.cost_per_mb * metered_bytes / 1e6
        accuracy, loss = self.measure(received)
        last, part = ModelJudgement.from_bytes(before) if before else None, None
        if call.weight is not None:
            part = ModelPart.of(call, received, last.part if last else None)
        if last is None:
            valuation = Valuation(accuracy, None, forced=True, received_loss=loss)
            return ModelJudgement(True, valuation, received, part, cost)
        own_accuracy, own_loss = self.measure(last.own)
        curve = last.valuation.curve
        fitted_utility = None
        if curve is not None:  # the device asks for what the transfers cost now
            curve = curve._replace(threshold=curve.threshold + (cost - last.cost))
        if curve is not None and call.weight is not None:
            fitted_utility = curve.at(call.weight)
        valuation = Valuation(
            accuracy,
            own_accuracy,
            curve,
            self.gains(accuracy, own_accuracy, cost),
            call.key.round <= self._settings.forced_rounds,
            fitted_utility,
            last.valuation.r_squared,
            loss,
            own_loss,
        )
        accepts = valuation.forced or self._accepts(call, valuation)
        return ModelJudgement(accepts, valuation, last.own, part, cost)

    def _accepts(self, call: Call, valuation: Valuation) -> bool:
        """Whether a device that is free to decline accepts."""
        settings, curve, fitted_utility = self._settings, valuation.curve, valuation.fitted_utility
        match settings.test:
            case "always":
                return True
            case "coin":
                draws = stream(self._seed, "utility coin", self._client, call.key.round)
                return bool(draws.random() < _COIN)
            case "fitted" if curve is not None and fitted_utility is not None:
                return fitted_utility >= curve.threshold - settings.tolerance
        return bool(valuation.gains)

    def gains(self, received: float, own: float, cost: float = 0.0) -> bool:
        """Whether a model is so much better than the device's own that it accepts it (eq. 1).

        Args:
            received, own: accuracies of the two models.
            cost: accuracy that the transfers of the round cost the device.
        """
        return received > (1 + self._settings.margin) * own - self._settings.tolerance + cost

    def conclude(
        self, call: Call, judgement: ModelJudgement, start: Vector, change: Vector
    ) -> ModelJudgement:
        """Return the judgement after training: with the new own model and, if the device knows
        its part in the received model, with a new utility curve.

        Args:
            start: where training began, float32, shape (parameters,).
            change: what training changed, in the same shape.
        """
        own, part, valuation = start + change, judgement.part, judgement.valuation
        if part is None:
            return judgement._replace(own=own)
        if part.contribution is not None and call.weight is not None:
            others = without(part.model, part.contribution, call.weight)
            curve, quality = self._fit(call.weight, others, own, judgement)
            valuation = valuation._replace(curve=curve, r_squared=quality)
        if judgement.accepts:
            part = part._replace(sent=own if call.retains_model else change)
        return judgement._replace(valuation=valuation, own=own, part=part)

    def _fit(
        self, weight: float, others: Vector, own: Vector, judgement: ModelJudgement
    ) -> tuple[UtilityCurve, float | None]:
        """Fit the utility of (1 − r)·(the model without the device) + r·(the own model), and
        measure R² if asked."""
        settings = self._settings
        curve = UtilityCurve(*fitted(*self._utilities(others, own, settings.points)), 0.0)
        match settings.threshold:
            case "weight":
                threshold = curve.at(weight)
            case "global":
                threshold = (1 + settings.margin) * judgement.valuation.received_accuracy
            case "local":
                threshold = (1 + settings.margin) * self.measure(own)[0]
        quality = None
        if settings.dense_points:
            weights, measured = self._utilities(others, own, settings.dense_points)
            quality = r_squared(measured, (curve.b - curve.a * weights) * weights + curve.c)
        reported = threshold * (1 + settings.inflation) + judgement.cost
        return curve._replace(threshold=reported), quality

    def _utilities(self, others: Vector, own: Vector, points: int) -> tuple[FloatArray, FloatArray]:
        """Measure the accuracies of the mixtures of two models: weights of the own model from 0 to
        the largest, and the accuracies, each of shape (points,)."""
        rest, weights = (
            others.astype(np.float64),
            np.linspace(0.0, self._settings.largest_weight, points),
        )
        mixtures = ((1 - r) * rest + r * own for r in weights)
        return weights, np.array([self.measure(m.astype(np.float32))[0] for m in mixtures])

    def measure(self, parameters: Vector) -> tuple[float, float | None]:
        """Return a model's share of right predictions on the validation examples, and its loss;
        None for a loss that is not finite or too large to be sent.

        Args:
            parameters: float32, shape (parameters,).

        Raises:
            ConfigError: the task's evaluation gives no accuracy.
        """
        load_vector(self._module, parameters.astype(np.float32))
        metrics = self._task.metrics_on(self._module, self._validation)
        accuracy, loss = metrics.get("accuracy", math.nan), metrics["loss"]
        if not 0 <= accuracy <= 1:
            raise ConfigError(
                f"task: a rational device compares accuracies, but the evaluation gave "
                f"{', '.join(metrics)} with the accuracy {accuracy:g} to {self._client}; take a "
                f"task with an accuracy from 0 to 1, or participation.kind = 'compliant'"
            )
        return accuracy, loss if abs(loss) <= LARGEST_UTILITY else None
