"""What is in the messages of Flower apps: the record of the model, numbers, and the round."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from muster.common.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

EXAMPLES = ("num-examples", "num_examples")
"""Names of the number of examples, of the message API and of the legacy API."""

_ROUND = ("server-round", "server_round")
"""Names of the round in a `ConfigRecord`, of strategies and of legacy ones by custom."""


def model_record(content: RecordDict, what: str) -> str:
    """Return the name of the one record that has the model.

    Args:
        what: the words for the message, for the refusal.

    Raises:
        ConfigError: there is none, or more than one.
    """
    names: list[str] = [n for n, record in content.items() if isinstance(record, ArrayRecord)]
    if len(names) == 1:
        return names[0]
    raise ConfigError(
        f"task.app: expected one ArrayRecord in {what}, which is the model, found "
        f"{', '.join(names) or 'none'} among the records {', '.join(content) or 'none'}; an app "
        f"that sends other messages, for example of secure aggregation, cannot be hosted"
    )


def with_model(content: RecordDict, model: ArrayRecord, round: int | None = None) -> RecordDict:
    """Return a copy of the records of a message with another model.

    Args:
        content: with one `ArrayRecord`.
        round: takes the place of the number of the round, if there is one; None: it stays.
    """
    copy = RecordDict()
    for name, record in content.items():
        if isinstance(record, ArrayRecord):
            copy[name] = model
        elif isinstance(record, ConfigRecord):
            known = _ROUND if round is not None else ()
            copy[name] = ConfigRecord({**record, **{k: round for k in known if k in record}})
        else:
            copy[name] = MetricRecord({**record})
    return copy


def copied(content: RecordDict) -> RecordDict:
    """Return a copy of the records of a message, from which a node may take what it wants."""
    copy = RecordDict()
    for name, record in content.items():
        copy[name] = type(record)(dict(record.items()))
    return copy


def without_model(content: RecordDict) -> RecordDict:
    """Return a copy of the records of a message whose `ArrayRecord` is empty."""
    return with_model(content, ArrayRecord())


def with_examples(content: RecordDict, examples: int) -> RecordDict:
    """Set the number of examples where the records of a reply state it; return them."""
    for record in content.values():
        for name in EXAMPLES:
            if not isinstance(record, ArrayRecord) and name in record:
                record[name] = examples
    return content


def numbers_of(content: RecordDict) -> dict[str, float]:
    """Return all numbers in the records of a reply that are not arrays. The first of a name counts.

    The legacy API has metrics in a `ConfigRecord`, and the number of its status in another.
    """
    found: dict[str, float] = {}
    for name, record in content.items():
        if isinstance(record, ArrayRecord) or name.endswith(".status"):
            continue
        for key, value in record.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                found.setdefault(key, value)
    return found


def metric_name(
    numbers: Mapping[str, float], named: str | None, usual: Sequence[str]
) -> str | None:
    """Return the name of a metric: the one that a scenario names, or else the first usual one that
    is there, or None.

    Raises:
        ConfigError: the one that the scenario names is not there.
    """
    if named is not None and named not in numbers:
        raise ConfigError(
            f"task: the app reports no metric {named!r}; there are: {', '.join(numbers) or 'none'}"
        )
    return named or next((name for name in usual if name in numbers), None)
