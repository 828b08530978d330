"""The next version of a model by the formulas of docs/aggregators.md, from the updates themselves.

Sums are computed by integers (`exact_total`). All other arithmetic is in float64, in the order in
which docs/rounds.md writes it, and is rounded once to float32.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from tests.oracles.exact_total import ExactTotal, exact_sum_of
from tests.oracles.vector_formulas import tolerated

from muster.common.seeds import BoolArray, FloatArray
from muster.common.tensors import Vector

_BLOCK = 16_384
"""Coordinates that are sorted at once."""

_STEPS = ("fedavgm", "fedadagrad", "fedadam", "fedyogi", "scaffold")
_COMBINATIONS = ("median", "trimmed-mean", "bulyan")
_MEMORIES = ("fedvarp", "mifa")
RECALLING = ("feduca", "max-participation", "rational-fedavg", "incfl", "aaggff-s")
"""Rules that make every version from what all devices have sent last."""


class CountedUpdate(NamedTuple):
    """An update that counts in a round.

    Attributes:
        vector: the update, float32, shape (parameters,). With control variates their changes
            follow it, which decide nothing about the model until devices use them.
        base_version: the version from which the device trained.
        chosen: whether the device trained each coordinate; None: all. The others are 0.
    """

    client: str
    vector: Vector
    weight: float
    base_version: int
    chosen: BoolArray | None = None


@dataclass(frozen=True)
class RuleForm:
    """How a rule changes the model, as its class declares it (docs/aggregators.md).

    Attributes:
        change: "sum", "step", "combination", "memory" or "recall".
        parameters: whether it weighs parameters instead of updates.
        mixes: whether the model keeps what the weights leave of 1.
        settings: the settings of the rule, with its name as `kind`.
        carries: whether updates may count in a later round than that of their call.
        enrolled: number of devices that may train.
    """

    change: str
    parameters: bool
    mixes: bool
    settings: Mapping[str, Any]
    carries: bool
    enrolled: int

    def unknown(self) -> str | None:
        """Why versions of this rule cannot be made again; None if they can."""
        kind = self.settings["kind"]
        known = {"sum": (kind,), "step": _STEPS, "combination": _COMBINATIONS, "memory": _MEMORIES,
                 "recall": RECALLING}  # fmt: skip
        if kind in known.get(self.change, ()):
            return None
        return f"{kind!r} changes the model by code of its own, which the audit does not have"


@dataclass
class ModelChain:
    """The versions of a model, made one after the other.

    Attributes:
        versions: the versions that updates may still be based on, by number.
        newest: the number of the newest one.
        last: for a rule that remembers, the last update of every client, or its last model.
        frozen: whether training must not move a coordinate; None: it may move all.
    """

    form: RuleForm
    versions: dict[int, Vector]
    newest: int = 0
    last: dict[str, Vector] = field(default_factory=dict)
    frozen: BoolArray | None = None
    _moments: dict[str, FloatArray] = field(default_factory=dict)
    _remembered: ExactTotal | None = None

    def advance(
        self,
        updates: Sequence[CountedUpdate],
        normaliser: float,
        scale: float,
        oldest: int,
        alpha: Mapping[str, float] = MappingProxyType({}),
    ) -> Vector:
        """Make the next version from the updates of a round, and return it.

        Args:
            updates: in the order of their clients.
            scale: 1; or minus the learning rate, if devices return gradients.
            oldest: versions before this one are forgotten.
            alpha: for a rule that recalls, the weights of all devices.
        """
        model = self.versions[self.newest]
        if self.form.change == "recall":
            made = self._by_recall(model, updates, alpha)
        else:
            made = {
                "sum": self._by_sum,
                "step": self._by_step,
                "combination": self._by_combination,
                "memory": self._by_memory,
            }[self.form.change](model, updates, normaliser, scale)
        if self.frozen is not None:
            made[self.frozen] = model[self.frozen]
        self.newest += 1
        self.versions[self.newest] = made
        for version in [version for version in self.versions if version < oldest]:
            del self.versions[version]
        return made

    def _by_sum(
        self, model: Vector, updates: Sequence[CountedUpdate], normaliser: float, scale: float
    ) -> Vector:
        """κ·model + s·Σ w·Δ / normaliser, where κ is what the rule keeps of the model."""
        if any(update.chosen is not None for update in updates):
            return self._where_trained(model, updates, normaliser, scale)
        total = ExactTotal(len(model))
        weights = [update.weight for update in updates]
        for update in updates:
            total.add(update.vector, update.weight)
        keep = 1.0
        if self.form.parameters:
            share = math.fsum(weights) / normaliser
            keep = 1.0 - share if self.form.mixes else 0.0
            if self.form.carries:
                for base in sorted({update.base_version for update in updates}):
                    of_base = [u.weight for u in updates if u.base_version == base]
                    total.add(self.versions[base], math.fsum(of_base))
            else:
                keep += share
        step = total.value()
        if scale != 1.0:
            step = step * scale
        step = step / normaliser
        return _rounded(step + (model if keep == 1.0 else keep * model.astype(np.float64)))

    def _where_trained(
        self, model: Vector, updates: Sequence[CountedUpdate], normaliser: float, scale: float
    ) -> Vector:
        """model + s·ψ·Σ w·Δ / normaliser (docs/masks.md); a coordinate that nobody trained stays.

        If the normaliser is Σ w, then ψ / normaliser is one division by Σ w·m. Otherwise ψ is
        divided by the normaliser first.
        """
        weights, every = [u.weight for u in updates], np.ones(len(model), bool)
        parts = [every if u.chosen is None else u.chosen for u in updates]
        step = exact_sum_of([u.vector for u in updates], weights, len(model)) * scale
        trained_by = exact_sum_of([p.astype(np.float32) for p in parts], weights, len(model))
        trained, whole = trained_by > 0, math.fsum(weights)
        step, trained_by = step[trained], trained_by[trained]
        if not self.form.settings.get("psi", True):
            step = step / normaliser
        elif normaliser == whole:
            step = step / trained_by
        else:
            step = step * (whole / trained_by / normaliser)
        made = model.copy()
        made[trained] = _rounded(step + model[trained])
        return made

    def _by_step(
        self, model: Vector, updates: Sequence[CountedUpdate], normaliser: float, scale: float
    ) -> Vector:
        """model + the step of the optimizer, whose gradient is the mean update."""
        vectors, weights = [u.vector for u in updates], [u.weight for u in updates]
        mean = exact_sum_of(vectors, weights, len(vectors[0])) * (scale / normaliser)
        settings, moments = self.form.settings, self._moments
        rate = settings["rate"]
        if settings["kind"] == "scaffold":
            return _rounded(model + rate * mean[: len(model)])
        if settings["kind"] == "fedavgm":
            moments["m"] = settings["momentum"] * moments.get("m", np.zeros(len(model))) + mean
            return _rounded(model + rate * moments["m"])
        beta1, tau = settings["beta1"], settings["tau"]
        moments["m"] = beta1 * moments.get("m", np.zeros(len(model))) + (1 - beta1) * mean
        v, squares = moments.get("v", np.full(len(model), tau**2)), mean**2
        if settings["kind"] == "fedadagrad":
            v = v + squares
        elif settings["kind"] == "fedadam":
            v = settings["beta2"] * v + (1 - settings["beta2"]) * squares
        else:
            v = v - (1 - settings["beta2"]) * squares * np.sign(v - squares)
        moments["v"] = v
        return _rounded(model + rate * moments["m"] / (np.sqrt(v) + tau))

    def _by_combination(
        self, model: Vector, updates: Sequence[CountedUpdate], normaliser: float, scale: float
    ) -> Vector:
        """model + what the rule makes of the sorted values of each coordinate."""
        chosen = [update.vector for update in updates if update.weight]
        wrong = tolerated(self.form.settings, len(updates))
        step = np.empty(len(model))
        for start in range(0, len(model), _BLOCK):
            block = slice(start, start + _BLOCK)
            values = np.sort(np.array([vector[block] for vector in chosen]), axis=0)
            step[block] = _COMBINE[self.form.settings["kind"]](values, wrong)
        return _rounded(model + step * scale)

    def _by_memory(
        self, model: Vector, updates: Sequence[CountedUpdate], normaliser: float, scale: float
    ) -> Vector:
        """model + s·w·Σ (Δ − y) / normaliser + s·p·Σ y, where y are the last updates before."""
        if self._remembered is None:
            self._remembered = ExactTotal(len(model))
        before = self._remembered.value()
        for update in updates:
            if update.client in self.last:
                self._remembered.add(self.last[update.client], 1.0, times=-1)
            self._remembered.add(update.vector, 1.0)
            self.last[update.client] = update.vector
        weight = updates[0].weight
        past = self.form.settings["rate"] / self.form.enrolled
        if self.form.settings["kind"] == "mifa":
            past = 1 / (self.form.enrolled / self.form.settings["rate"]) if weight else 0.0
        fresh = scale * (weight / normaliser)
        change = (self._remembered.value() - before) * fresh + before * (scale * past)
        return _rounded(change + model)

    def _by_recall(
        self, model: Vector, updates: Sequence[CountedUpdate], alpha: Mapping[str, float]
    ) -> Vector:
        """model + Σ α·D over the last updates of all devices; or Σ α·m + (1 − Σ α)·model over their
        last models m."""
        models = self.form.settings["retention"] == "model"
        for update in updates:
            self.last[update.client] = model + update.vector if models else update.vector
        weights = [alpha[client] for client in self.last]
        sent = exact_sum_of(list(self.last.values()), weights, len(model))
        left = math.fsum([1.0, *(-weight for weight in weights)]) if models else 1.0
        return _rounded(sent + (model if left == 1.0 else left * model.astype(np.float64)))


def _rounded(values: FloatArray) -> Vector:
    with np.errstate(over="ignore", invalid="ignore"):
        return values.astype(np.float32)


def _median(values: Vector, wrong: int) -> FloatArray:
    size = len(values)
    middle = values[[(size - 1) // 2, size // 2]].astype(np.float64)
    return np.asarray((middle[0] + middle[1]) / 2)


def _trimmed(values: Vector, wrong: int) -> FloatArray:
    return np.asarray(values[wrong : len(values) - wrong].mean(axis=0, dtype=np.float64))


def _around_median(values: Vector, wrong: int) -> FloatArray:
    count = len(values) - 2 * wrong
    distances = np.abs(values - values[(len(values) - 1) // 2].astype(np.float64))
    nearest = np.argsort(distances, axis=0, kind="stable")[:count]
    return np.asarray(np.take_along_axis(values, nearest, 0).mean(axis=0, dtype=np.float64))


_COMBINE = {"median": _median, "trimmed-mean": _trimmed, "bulyan": _around_median}
"""What is made of the values of each coordinate, in ascending order, and of the number of wrong
updates that are tolerated."""
