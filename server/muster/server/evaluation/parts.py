"""Joins the results of a model on parts of the examples: those of devices, or of groups."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from muster.server.evaluation.messages import Part


def by_group(
    parts: Mapping[Any, Part], groups: Sequence[str] | Mapping[str, str]
) -> dict[str, Part]:
    """Return the parts of the groups, in which each device is weighted by its examples.

    Args:
        parts: the parts of devices, by position or name.
        groups: the group of every device, by the same. A group without examples gets no part.
    """
    members: dict[str, list[Part]] = {}
    for device, part in parts.items():
        members.setdefault(groups[device], []).append(part)
    return {group: joined(of_group) for group, of_group in members.items()}


def joined(parts: Sequence[Part]) -> Part:
    """Return the result on the examples of all parts together; of other metrics than loss and
    accuracy the mean, weighted by examples, of those that every part has."""
    examples = sum(part.examples for part in parts)

    def mean(values: Sequence[float | None]) -> float | None:
        weighted = [p.examples * v for p, v in zip(parts, values, strict=True) if v is not None]
        return math.fsum(weighted) / examples if len(weighted) == len(parts) else None

    names = set.intersection(*(set(part.metrics) for part in parts))
    metrics = {name: mean([part.metrics[name] for part in parts]) for name in sorted(names)}
    known = {name: value for name, value in metrics.items() if value is not None}
    loss = math.fsum(part.examples * part.loss for part in parts) / examples
    return Part(examples, loss, mean([part.accuracy for part in parts]), known)
