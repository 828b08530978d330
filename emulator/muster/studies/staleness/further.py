"""Parts of the full form only: FedBuff's own times of calls, steps for which staleness is too much,
and pictures whose slow devices hold other digits."""

from collections.abc import Iterator

from muster.studies.claims import Claim, greater, higher, negligible, times
from muster.studies.staleness.fleet import (
    BUFFERED,
    SHARE,
    SYNCHRONOUS,
    StalenessSetting,
    linked_pictures,
    scenario,
)
from muster.studies.staleness.measures import (
    ALIKE,
    APART_PART,
    CHANGED,
    LINKED,
    STALE,
    StalenessMeasures,
)
from muster.studies.study_run import Label, StudyRun

AT_FINISH, WEIGHED = "calls at finish", "exponent 0.5"
"""Changes of the buffered mode."""

LONG = StalenessSetting(apart=0.0, at_once=40, k=10, steps=50)
"""All devices work, and each goes 87 % of the way to its own optimum in a round. About three
versions are made meanwhile, so the model goes several times as far as it should."""

_VERSIONS, _ROUNDS = 80, 20
_LINKED = {SYNCHRONOUS: 30, BUFFERED: 60}
"""Rounds of `linked`: both methods use as many updates."""
_HARM, _SAVED, _FREE = 100, 0.01, 0.001


def further_runs(seed: int, data: str | None) -> Iterator[StudyRun]:
    for part, apart in ((ALIKE, 0.0), (CHANGED, StalenessSetting().apart)):
        setting = StalenessSetting(apart=apart, calls_at="finish")
        yield _run(part, seed, BUFFERED, _VERSIONS, setting, AT_FINISH)
    yield _run(STALE, seed, SYNCHRONOUS, _ROUNDS, LONG)
    yield _run(STALE, seed, BUFFERED, _VERSIONS, LONG)
    yield _run(STALE, seed, BUFFERED, _VERSIONS, LONG._replace(exponent=0.5), WEIGHED)
    for method, rounds in _LINKED.items():
        read = linked_pictures(seed, method, rounds, data)
        yield StudyRun(LINKED, {"method": method}, read, 4.0 + 0.1 * rounds)


def _run(
    part: str, seed: int, method: str, rounds: int, setting: StalenessSetting, change: str = ""
) -> StudyRun:
    labels: dict[str, Label] = {"method": method, **({"change": change} if change else {})}
    return StudyRun(part, labels, scenario(seed, method, rounds, setting), 4.0 + 0.1 * rounds)


def further_claims(found: StalenessMeasures) -> Iterator[Claim]:
    """The claims about the runs that took place; none with --quick."""
    if found.of("gap", STALE, BUFFERED):
        yield from _at_finish(found)
        yield from _stale(found)
        yield from _linked(found)


def _at_finish(found: StalenessMeasures) -> Iterator[Claim]:
    usual, own = (
        found.of("pull", part, BUFFERED, change)
        for part, change in ((APART_PART, ""), (CHANGED, AT_FINISH))
    )
    yield greater(
        "FedBuff, which calls a device at every finish, has a bias that is larger by more than "
        "0.005 than with calls at a version",
        {seed: SHARE - pull for seed, pull in own.items()},
        {seed: SHARE - pull for seed, pull in usual.items()},
        by=0.005,
    ).because("Fast devices never wait for a version, so they finish even more often.")
    seconds = {change: found.of("seconds to target", ALIKE, BUFFERED, change)
               for change in ("", AT_FINISH)}  # fmt: skip
    yield greater(
        "With data alike, calls at a version need more than 1.1 times the time of calls at every "
        "finish",
        seconds[""],
        times(seconds[AT_FINISH], 1.1),
    ).because("As many devices as allowed work at every time.")


def _stale(found: StalenessMeasures) -> Iterator[Claim]:
    harmed = found.of("gap", STALE, BUFFERED)
    yield higher(  # gaps that grow exponentially are judged on logarithms
        f"With long local training, staleness does harm: the buffered mode with a constant weight "
        f"begins with a gap near 10 and ends with one over {_HARM}",
        harmed,
        dict.fromkeys(harmed, float(_HARM)),
    ).because("The step times the staleness is above π/2, beyond which delayed descent diverges.")
    yield greater(
        "With long local training, synchronous training ends with less than a thousandth of the "
        "gap of the buffered mode with the staleness weight of FedBuff",
        times(found.of("gap", STALE, BUFFERED, WEIGHED), _FREE),
        found.of("gap", STALE, SYNCHRONOUS),
    ).because("Nothing is stale, and all devices count in every round.")
    yield negligible(
        "With long local training, the staleness weight of FedBuff leaves at most a hundredth of "
        "this gap",
        found.of("gap", STALE, BUFFERED, WEIGHED),
        harmed,
        _SAVED,
    ).because("It makes the steps of stale versions shorter.")


def _linked(found: StalenessMeasures) -> Iterator[Claim]:
    losses = found.by_method("slow loss", LINKED)
    yield greater(
        "On pictures whose slow devices hold other digits, the buffered mode ends with the larger "
        "loss on the slow devices' digits, with as many updates",
        losses[BUFFERED],
        losses[SYNCHRONOUS],
    ).because("Updates about these digits count less often.")
