"""The claims and checks of the study `staleness`, from its measures.

The pull of the slow devices is `SHARE` at the optimum of all devices. The bias of a method is what
is missing of it.
"""

from collections.abc import Iterator

from muster.studies.claims import (
    BySeed,
    Claim,
    at_most,
    difference,
    exact,
    greater,
    grows,
    negligible,
    times,
)
from muster.studies.staleness.fleet import (
    APART,
    AT_ONCE,
    BUFFERED,
    EXTRA,
    FEDASYNC,
    FEDVARP,
    LINKS,
    LIVES,
    OPPORTUNISTIC,
    OVER_SELECTED,
    REMEMBERING,
    SHARE,
    SLOWNESS,
    SYNCHRONOUS,
)
from muster.studies.staleness.measures import (
    ACCURACY,
    ALIKE,
    APART_PART,
    CHANGED,
    EARLY_S,
    PICTURES,
    WORLDS,
    StalenessMeasures,
)

APARTS, SLOWNESSES, AT_ONCES, EXPONENTS = (1.0, 2.5), (2.0, 5.0), (4, 40), (0.5, 1.0)
"""The levels of what is changed, beside the usual one."""
LIMITED = "limited"
LIMIT = 2
"""The `max_staleness` of the change `LIMITED`."""


def change_of(what: str, level: float) -> str:
    """The name of a change, for example "slowness 2"."""
    return f"{what} {level:g}"


def claims_of(found: StalenessMeasures) -> list[Claim]:
    claims = [*_savings(found), *_biases(found), *_levels(found), *_crossing(found)]
    claims += _worlds(found)
    return [*claims, *_pictures(found)]


def _savings(found: StalenessMeasures) -> Iterator[Claim]:
    seconds = found.by_method("seconds to target", ALIKE)
    sent = found.by_method("bytes to target", ALIKE)
    yield greater(
        "With data alike, synchronous training needs more than twice the time of over-selection",
        seconds[SYNCHRONOUS],
        times(seconds[OVER_SELECTED], 2),
    ).because("Its rounds wait for slow devices, and those of over-selection hardly do.")
    yield greater(
        "With data alike, over-selection needs more time than opportunistic rounds",
        seconds[OVER_SELECTED],
        seconds[OPPORTUNISTIC],
    ).because("An opportunistic round waits for nobody, and loses no update.")
    yield greater(
        "With data alike, over-selection needs over 1.5 times the time of the buffered mode",
        seconds[OVER_SELECTED],
        times(seconds[BUFFERED], 1.5),
    ).because("A version of the buffered mode needs fewer updates, and no device waits for others.")
    yield greater(
        "With data alike, over-selection sends over 1.15 times the bytes of synchronous training "
        "until the target",
        sent[OVER_SELECTED],
        times(sent[SYNCHRONOUS], 1.15),
    ).because(f"{EXTRA} of {AT_ONCE + EXTRA} updates of a round do not count.")
    yield greater(
        "With data alike, synchronous training sends more bytes until the target than the buffered "
        "mode: the time that asynchrony saves is not paid for in bytes",
        sent[SYNCHRONOUS],
        sent[BUFFERED],
    ).because("Stale updates still point to the optimum, and versions need fewer of them.")


def _biases(found: StalenessMeasures) -> Iterator[Claim]:
    bias = {method: _bias(found, APART_PART, method) for method in _biased(found)}
    yield negligible(
        "With data apart, synchronous training has at most 0.4 times the bias of the buffered mode",
        bias[SYNCHRONOUS],
        bias[BUFFERED],
        0.4,
    ).because("Every device is selected equally often, and every selected device counts.")
    yield greater(
        f"With data apart, over-selection loses more than three quarters of the {SHARE:g} by which "
        f"slow devices should weigh",
        bias[OVER_SELECTED],
        by=0.75 * SHARE,
    ).because("A round has reached its goal before most slow devices finish.")
    yield greater(
        f"With data apart, the buffered mode loses more than {0.4 * SHARE:g} of it",
        bias[BUFFERED],
        by=0.4 * SHARE,
    ).because("A device that works longer finishes less often.")
    yield greater(
        "With data apart, over-selection has the larger bias than opportunistic rounds, by more "
        "than 0.01",
        bias[OVER_SELECTED],
        bias[OPPORTUNISTIC],
        by=0.01,
    ).because("A late update is lost in one and counts in the other.")
    yield greater(
        f"Opportunistic rounds do not remove the bias: they lose more than {0.5 * SHARE:g} too",
        bias[OPPORTUNISTIC],
        by=0.5 * SHARE,
    ).because("A device that still works is not called, so slow devices are called less often.")
    yield greater(
        f"With data apart, FedAsync, which makes a version of every update, loses more than "
        f"{0.4 * SHARE:g} too",
        bias[FEDASYNC],
        by=0.4 * SHARE,
    ).because("The number of updates in a version does not change how often a device finishes.")
    for method in REMEMBERING:
        yield negligible(
            f"Remembered updates remove the bias: opportunistic rounds with {method} have at most "
            f"a tenth of that without",
            bias[method],
            bias[OPPORTUNISTIC],
            0.1,
        ).because("The last update of every device counts in every round, whoever comes.")
    gaps = found.by_method("gap", APART_PART)
    yield greater(
        "With data apart, fedvarp ends with less than half of the gap of synchronous training",
        times(gaps[SYNCHRONOUS], 0.5),
        gaps[FEDVARP],
    ).because("The remembered updates also take away the noise of who is selected.")
    for method, name in ((BUFFERED, "buffered mode"), (OPPORTUNISTIC, "opportunistic rounds")):
        weights = found.of("weight", APART_PART, method)
        pulls = found.of("pull", APART_PART, method)
        yield negligible(
            f"Counted weights give the limit: pull and weight of the slow devices in the {name} "
            f"differ by at most a tenth of the bias",
            difference(pulls, weights),
            bias[method],
            0.1,
        ).because("With curvature 1 the limit is Σ p_i θ_i, whatever the staleness of the updates.")


def _levels(found: StalenessMeasures) -> Iterator[Claim]:
    usual = _bias(found, APART_PART, BUFFERED)
    for text, what, levels, level, why in (
        ("The bias of the buffered mode grows with the slowness", "slowness", SLOWNESSES, SLOWNESS,
         "The longer a device works, the fewer of its updates there are in a time."),
        ("The bias of the buffered mode grows with the number of devices that work at a time",
         "at once", AT_ONCES, AT_ONCE,
         "If few work at a time, devices mostly wait for a call, and calls are drawn evenly."),
        ("The bias of the buffered mode grows with the exponent of the staleness weight",
         "exponent", EXPONENTS, 0, "Slow devices are stale, so the weight takes more from them."),
    ):  # fmt: skip
        changed = {at: _bias(found, CHANGED, BUFFERED, change_of(what, at)) for at in levels}
        yield grows(text, {**changed, level: usual}).because(why)
    few = _bias(found, CHANGED, BUFFERED, change_of("at once", AT_ONCES[0]))
    yield greater(
        f"With {AT_ONCES[0]} devices at a time the buffered mode has less than four fifths of the "
        f"bias that it has with {AT_ONCE}",
        times(usual, 0.8),
        few,
    ).because("Then it is nearly chance alone that decides which device works.")
    weighed = _bias(found, CHANGED, BUFFERED, change_of("exponent", EXPONENTS[0]))
    yield greater(
        f"The staleness weight of FedBuff, with the exponent {EXPONENTS[0]:g}, adds more than 0.02 "
        f"to the bias",
        weighed,
        usual,
        by=0.02,
    ).because(
        "It protects against staleness, which does no harm here, by the weight of slow devices."
    )
    yield greater(
        f"Opportunistic rounds that refuse updates with a staleness over {LIMIT} have a bias that "
        f"is larger by more than 0.02",
        _bias(found, CHANGED, OPPORTUNISTIC, LIMITED),
        _bias(found, APART_PART, OPPORTUNISTIC),
        by=0.02,
    ).because("Almost no slow device finishes in time for that.")


def _crossing(found: StalenessMeasures) -> Iterator[Claim]:
    early = {m: found.of("early gap", APART_PART, m) for m in (SYNCHRONOUS, BUFFERED)}
    late = {m: found.of("gap", APART_PART, m) for m in (SYNCHRONOUS, BUFFERED)}
    yield greater(
        f"With data apart, the buffered mode is ahead after {EARLY_S:g} s, with less than half of "
        f"the gap of synchronous training",
        times(early[SYNCHRONOUS], 0.5),
        early[BUFFERED],
    ).because("By then it has made many versions, and synchronous training a few.")
    yield greater(
        "With data apart, synchronous training is ahead at the end, with less than a fifth of the "
        "gap of the buffered mode",
        times(late[BUFFERED], 0.2),
        late[SYNCHRONOUS],
    ).because("The bias does not become smaller with time.")
    levels: dict[float, BySeed] = {
        apart: _excess(found, CHANGED, change_of("apart", apart)) for apart in APARTS
    }
    yield grows(
        "What the buffered mode adds to the loss on the slow devices' data grows with the distance "
        "of their optimum",
        {**levels, APART: _excess(found, APART_PART, "")},
    ).because("The limit stays at the same place between the optima, which are further apart.")
    sooner = {apart: times(found.crossings(change_of("apart", apart)), -1) for apart in APARTS}
    yield grows(
        "The further apart the data, the sooner synchronous training overtakes the buffered mode",
        {**sooner, APART: times(found.crossings(""), -1)},
    ).because("The buffered mode stays at a gap that grows with the distance; the other one falls.")


def _worlds(found: StalenessMeasures) -> Iterator[Claim]:
    yield greater(
        f"If links make devices slow, the buffered mode loses more than {0.4 * SHARE:g} too",
        _bias(found, WORLDS, BUFFERED, LINKS),
        by=0.4 * SHARE,
    ).because("It does not matter for what a device needs its time.")
    yield greater(
        "With batteries and drop-outs, the buffered mode has the larger bias than synchronous "
        "training, by more than 0.04",
        _bias(found, WORLDS, BUFFERED, LIVES),
        _bias(found, WORLDS, SYNCHRONOUS, LIVES),
        by=0.04,
    ).because("What devices do besides does not change that slow ones finish less often.")


def _pictures(found: StalenessMeasures) -> Iterator[Claim]:
    seconds = found.by_method("seconds to accuracy", PICTURES)
    if seconds:
        yield greater(
            f"On pictures, synchronous training needs more than twice the time of the buffered "
            f"mode for an accuracy of {ACCURACY:.0%}",
            seconds[SYNCHRONOUS],
            times(seconds[BUFFERED], 2),
        ).because("Its rounds wait for slow devices.")


def checks_of(found: StalenessMeasures) -> Iterator[Claim]:
    wasted = found.by_method("wasted", APART_PART)
    yield exact("No update of synchronous training is wasted", wasted[SYNCHRONOUS], 0, 0)
    yield exact(
        f"Over-selection wastes {EXTRA} of {AT_ONCE + EXTRA} updates",
        wasted[OVER_SELECTED],
        EXTRA / (AT_ONCE + EXTRA),
        1e-9,
    )
    yield at_most(
        "Opportunistic rounds waste at most the updates that are open at the end, 3 % of all",
        wasted[OPPORTUNISTIC],
        0.03,
    )


def _biased(found: StalenessMeasures) -> list[str]:
    return list(found.by_method("pull", APART_PART))


def _bias(found: StalenessMeasures, part: str, method: str, change: str = "") -> dict[int, float]:
    """What is missing of the pull of the slow devices, by seed."""
    pulls = found.of("pull", part, method, change)
    return {seed: SHARE - pull for seed, pull in pulls.items()}


def _excess(found: StalenessMeasures, part: str, change: str) -> dict[int, float]:
    """The loss on the slow devices' data in the buffered mode, minus that at the optimum of all."""
    return dict(found.of("slow excess", part, BUFFERED, change))
