"""Which rules, and which other features, exclude each other."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import click

from generation.markdown import table
from muster.common.requirements import Requirement as R
from muster.common.withholders import Withholder as W
from muster.emulator.faults.registry import BUILT_IN as FAULTS
from muster.server.aggregators import AGGREGATORS, BUILT_IN, Aggregator
from muster.server.aggregators.combinations import excludes
from muster.server.rounds.modes import BUILT_IN as MODES
from muster.server.rounds.modes import Mode
from muster.server.settings.privacy import PLACES, Where

_COLUMNS = (
    W.MASK,
    W.PARTIAL_SUMS,
    W.LATER_ROUNDS,
    W.STALENESS_WEIGHT,
    W.CODEC,
    W.RATIONAL,
    W.APP,
    W.EQUAL_WEIGHTS,
    W.DEVICE_PRIVACY,
)
"""What the table of the rules shows of each; `_others` lists the rest."""


class _Feature(NamedTuple):
    """What a feature requires, and what it takes away."""

    requires: tuple[R, ...]
    withholds: tuple[W, ...]


def _faults() -> dict[str, _Feature]:
    """What the built-in faults require; faults that agree share a row."""
    found: dict[tuple[R, ...], list[str]] = {}
    for kind, fault in FAULTS.items():
        found.setdefault(tuple(sorted(fault.requires)), []).append(f"`{kind}`")
    return {
        f"the fault{'s' if len(kinds) > 1 else ''} {', '.join(kinds)}": _Feature(requires, ())
        for requires, kinds in found.items()
        if requires
    }


def _private(where: Where) -> _Feature:
    """What noise there requires and takes away."""
    return _Feature(PLACES[where].requires, PLACES[where].withholds)


_FEATURES: Mapping[str, _Feature] = {
    "`groups.mask`": _Feature((R.MASK,), (W.MASK,)),
    "a drawn schedule of `groups.mask`": _Feature((), (W.DRAWN_MASK,)),
    "`groups.partial_sums`": _Feature((R.PARTIAL_SUMS,), (W.PARTIAL_SUMS, W.LATE_SUMS)),
    "`server.secure`": _Feature((R.SECURE_SUMS,), (W.SECURE_SUMS,)),
    "`server.privacy` in sums": _private("sum"),
    "`server.privacy` on the server": _private("server"),
    "`server.privacy` on devices": _private("device"),
    "rational devices": _Feature((R.OWN_MODEL, R.JUDGED_MODELS), (W.RATIONAL,)),
    "settings of `participation.utility`": _Feature((R.FITTED_UTILITY, R.REPORTED_UTILITY), ()),
    "`shared_link.slots` in lockstep": _Feature((R.SLOTS,), (W.SLOTS,)),
    "`shared_link.slots`": _Feature((R.GRANTS,), ()),
    "`groups.link`": _Feature((R.OWN_LINK, R.WALL_TIME), ()),
    "`server.goal`": _Feature((R.GOAL,), ()),
    "buffered": _Feature((R.DRAWN_CALLS,), ()),
    "clocks that run": _Feature((R.DEADLINE,), (W.RUNNING_CLOCK,)),
    '`clock.kind = "modelled"`': _Feature((R.MODELLED_WORK,), ()),
    "`verify`": _Feature((R.MEASURED_LINKS,), ()),
    '`normalise = "horvitz-thompson"`': _Feature((R.EVERY_CALL,), ()),
    "models with counted buffers": _Feature((), (W.COUNTED,)),
    "`task.parts`": _Feature((), (W.PARTS,)),
    "`task.parts.frozen`": _Feature((), (W.FROZEN_PARTS,)),
    "`task.parts.local`": _Feature((R.LOCAL_PARTS,), (W.LOCAL_PARTS,)),
    "`server.evaluate_on` with devices": _Feature((R.DEVICE_METRICS,), ()),
    "hosted tasks (Flower apps)": _Feature((R.APP,), (W.APP,)),
    "`training.control_variates`": _Feature((R.CONTROL,), ()),
    "`training.gradient`": _Feature((R.GRADIENT,), (W.GRADIENT,)),
    "a `state` of `training.trainer`": _Feature((R.KEPT_STATE,), ()),
    "`training.augmentations`": _Feature((R.AUGMENTATIONS, R.PICTURES), ()),
    "`training.together`": _Feature((R.TOGETHER,), (W.TOGETHER,)),
    "`training.update_noise`": _Feature((R.NOISE,), (W.NOISY_UPDATES,)),
    "`server.keep_updates`": _Feature((R.KEPT_UPDATES,), ()),
    **_faults(),
}


def of_rules() -> list[str]:
    """What the built-in rules work with; rules that agree share a row."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for kind in BUILT_IN:
        requires = _rule(kind).requires()
        cells = ["yes" if _works(requires, column) else "no" for column in _COLUMNS]
        if not _works(requires, W.LATER_ROUNDS):  # then no update is stale
            cells[_COLUMNS.index(W.STALENESS_WEIGHT)] = ""
        rows.setdefault((*cells, _others(requires)), []).append(f"`{kind}`")
    head = ("aggregator", *map(_shown, _COLUMNS), "also not with")
    return table(head, ((", ".join(rules), *cells) for cells, rules in rows.items()))


def of_features() -> list[str]:
    """What features exclude each other, besides rules.

    Raises:
        click.ClickException: a requirement belongs to no rule and no feature.
    """
    owned = {requirement for feature in _FEATURES.values() for requirement in feature.requires}
    owned |= {requirement for kind in BUILT_IN for requirement in _rule(kind).requires()}
    if missing := set(R) - owned:
        raise click.ClickException(f"name the feature that requires {', '.join(sorted(missing))}")
    rows = ((name, ", ".join(dict.fromkeys(_excluded_by(name)))) for name in _FEATURES)
    return table(("feature", "not with"), rows)


def _taken_by(mode: Mode) -> Iterator[W]:
    """Yield what a mode takes away by its class, whatever its settings."""
    if mode.outlives_round():
        yield W.LATER_ROUNDS
    if mode.counts_versions:
        yield W.COUNTED_VERSIONS


def _rule(kind: str) -> Aggregator:
    rule = AGGREGATORS.parse(kind)
    assert isinstance(rule, Aggregator)
    return rule


def _works(requires: frozenset[R], column: W) -> bool:
    """Whether a rule works with a feature, and so does what the rule cannot do without."""
    with_it = [found for found in _FEATURES.values() if column in found.withholds]
    for implied in _implied_by(requires):
        if excludes(implied.requires, column):
            return False
        if any(excludes(found.requires, w) for found in with_it for w in implied.withholds):
            return False
    return not excludes(requires, column)


def _implied_by(requires: frozenset[R]) -> Iterator[_Feature]:
    """Yield the features that a rule cannot do without."""
    if excludes(requires, W.COMPLIANT):
        yield _FEATURES["rational devices"]
    if excludes(requires, W.NO_APP):
        yield _FEATURES["hosted tasks (Flower apps)"]


def _others(requires: frozenset[R]) -> str:
    found = [w for w in W if w not in _COLUMNS and excludes(requires, w)]
    return ", ".join(map(_shown, found))


def _excluded_by(name: str) -> Iterator[str]:
    """Yield what a feature excludes, and the features that exclude it."""
    feature = _FEATURES[name]
    yield from (_shown(w) for w in W if excludes(feature.requires, w))
    for other, found in _FEATURES.items():
        if any(excludes(found.requires, withholder) for withholder in feature.withholds):
            yield other


def _shown(withholder: W) -> str:
    """The name of a withholder, with keys as code; for what modes take away, their names."""
    if modes := [kind for kind, mode in MODES.items() if withholder in _taken_by(mode(kind=kind))]:
        return ", ".join(modes)
    name = str(withholder)
    if " = " in name:
        return f"`{name}`"
    words = (f"`{word}`" if "." in word or "_" in word else word for word in name.split(" "))
    return " ".join(words)
