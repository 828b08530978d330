"""Stale updates: what asynchrony saves in scenario time, and what it costs in bias.

Part `alike` has devices that differ in speed alone; `apart` has slow devices with other data.
`changed` is the latter with one changed setting, and `worlds` has slow links, and phones with
batteries. `pictures`, only in the full form, shows the accuracy of a classifier over time; so are
`stale`, with training so long that staleness does harm, and `linked`, whose slow devices hold other
digits.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, NamedTuple

from muster.studies.results import Results
from muster.studies.staleness.claims import (
    APARTS,
    AT_ONCES,
    EXPONENTS,
    LIMIT,
    LIMITED,
    SLOWNESSES,
    change_of,
    checks_of,
    claims_of,
)
from muster.studies.staleness.figure import draw_biases, draw_courses, draw_pulls
from muster.studies.staleness.fleet import (
    BUFFERED,
    FEDASYNC,
    FEDVARP,
    LINKS,
    LIVES,
    METHODS,
    MIFA,
    OPPORTUNISTIC,
    OVER_SELECTED,
    REMEMBERING,
    SYNCHRONOUS,
    StalenessSetting,
    pictures,
    scenario,
)
from muster.studies.staleness.further import further_claims, further_runs
from muster.studies.staleness.measures import (
    ALIKE,
    APART_PART,
    CHANGED,
    PICTURES,
    WORLDS,
    StalenessMeasures,
)
from muster.studies.study import DIGITS_FOR_MNIST, Findings, Options, Study, StudyFigure, StudyTable
from muster.studies.study_run import Label, StudyRun


class _StalenessSize(NamedTuple):
    """The size of the study.

    Attributes:
        rounds: method to its number of rounds or versions.
        few: that number of a buffered run with few devices at a time, whose versions have fewer
            updates.
        slownesses: the levels of slowness, beside the usual one.
        pictures: method to the number of rounds on pictures; empty without that part.
    """

    rounds: Mapping[str, int]
    few: int
    slownesses: Sequence[float]
    pictures: Mapping[str, int]


_FULL = _StalenessSize(
    {
        SYNCHRONOUS: 40,
        OVER_SELECTED: 80,
        OPPORTUNISTIC: 120,
        BUFFERED: 200,
        FEDASYNC: 1600,
        FEDVARP: 120,
        MIFA: 120,
    },
    400,
    (*SLOWNESSES, 20.0),
    {SYNCHRONOUS: 30, OVER_SELECTED: 120, OPPORTUNISTIC: 150, BUFFERED: 300},
)
_QUICK = _StalenessSize(
    {
        SYNCHRONOUS: 30,
        OVER_SELECTED: 40,
        OPPORTUNISTIC: 60,
        BUFFERED: 80,
        FEDASYNC: 500,
        FEDVARP: 60,
        MIFA: 60,
    },
    300,
    SLOWNESSES,
    {},
)
_EVERY = {FEDASYNC: 5}
"""Versions between evaluations, of methods that do not evaluate every one."""
_PICTURES_EVERY = {SYNCHRONOUS: 1, OVER_SELECTED: 4, OPPORTUNISTIC: 5, BUFFERED: 10}

_START_S, _ROUND_S = 4.0, 0.03
_LINK_S, _PICTURES_S = 0.3, 0.15


class StalenessStudy(Study):
    """Synchronous, over-selected, opportunistic and buffered training of the same fleet."""

    name: ClassVar = "staleness"
    about: ClassVar = "what asynchrony saves in time, and what it costs slow devices"
    quick_seeds: ClassVar = 2
    without_data: ClassVar = DIGITS_FOR_MNIST

    def runs(self, options: Options) -> Sequence[StudyRun]:
        return [run for seed in options.all_seeds for run in _runs(seed, options)]

    def remarks(self, options: Options) -> Sequence[str]:
        return () if options.quick else super().remarks(options)

    def judge(self, results: Results, options: Options) -> Findings:
        found = StalenessMeasures(results)
        table = StudyTable("methods", "Methods and changes", found.table(), _TABLE)
        figures = list(_figures(found, options))
        claims = [*claims_of(found), *further_claims(found)]
        return Findings(claims, list(checks_of(found)), figures, [table], _NOTES)


def _runs(seed: int, options: Options) -> Iterator[StudyRun]:
    size = _FULL if options.quick is False else _QUICK
    for part, setting in ((ALIKE, StalenessSetting(apart=0.0)), (APART_PART, StalenessSetting())):
        for method in METHODS:
            if part == APART_PART or method != FEDASYNC or not options.quick:
                yield _run(part, seed, size, method, setting)
    for method in REMEMBERING:
        yield _run(APART_PART, seed, size, method, StalenessSetting())
    for apart in APARTS:
        for method in (SYNCHRONOUS, BUFFERED):
            yield _run(
                CHANGED,
                seed,
                size,
                method,
                StalenessSetting(apart=apart),
                change_of("apart", apart),
            )
    for slowness in size.slownesses:
        setting, name = StalenessSetting(slowness=slowness), change_of("slowness", slowness)
        yield _run(CHANGED, seed, size, BUFFERED, setting, name)
        if not options.quick:
            yield _run(CHANGED, seed, size, OVER_SELECTED, setting, name)
    for at_once in AT_ONCES:
        setting, name = StalenessSetting(at_once=at_once), change_of("at once", at_once)
        yield _run(CHANGED, seed, size, BUFFERED, setting, name)
    for exponent in EXPONENTS:
        setting, name = StalenessSetting(exponent=exponent), change_of("exponent", exponent)
        yield _run(CHANGED, seed, size, BUFFERED, setting, name)
    yield _run(CHANGED, seed, size, OPPORTUNISTIC, StalenessSetting(max_staleness=LIMIT), LIMITED)
    for world, methods in ((LINKS, (BUFFERED,)), (LIVES, (SYNCHRONOUS, BUFFERED))):
        for method in methods:
            yield _run(WORLDS, seed, size, method, StalenessSetting(world=world), world)
    if not options.quick:
        yield from further_runs(seed, options.data)
    for method, rounds in size.pictures.items():
        read = pictures(seed, method, rounds, _PICTURES_EVERY[method], options.data)
        yield StudyRun(PICTURES, {"method": method}, read, _START_S + _PICTURES_S * rounds)


def _run(
    part: str,
    seed: int,
    size: _StalenessSize,
    method: str,
    setting: StalenessSetting,
    change: str = "",
) -> StudyRun:
    few = method == BUFFERED and setting.at_once == AT_ONCES[0]
    rounds = size.few if few else size.rounds[method]
    read = scenario(seed, method, rounds, setting, _EVERY.get(method, 1))
    labels: dict[str, Label] = {"method": method, **({"change": change} if change else {})}
    each_s = _LINK_S if setting.world == LINKS else _ROUND_S
    return StudyRun(part, labels, read, _START_S + each_s * rounds)


def _figures(found: StalenessMeasures, options: Options) -> Iterator[StudyFigure]:
    yield StudyFigure(
        "courses",
        "Gap over scenario time",
        lambda: draw_courses(found.courses),
        "The loss over all devices above the least, as a share of that at the optimum of the fast "
        "devices, in means over the seeds. A synchronous round lasts as long as the slowest update "
        "that it waits for.",
    )
    yield StudyFigure(
        "pulls",
        "The pull of the slow devices",
        lambda: draw_pulls(found.runs),
        "A dot for each run with data apart: the slow devices' share of the weight that counted, "
        "and where the mean model stands between the optima of fast (0) and slow devices (1).",
    )
    yield StudyFigure(
        "biases",
        "What changes the bias",
        lambda: draw_biases(found.runs),
        "The pull of the slow devices that is missing, with one setting changed; bars are means "
        "over the seeds, dots seeds.",
    )
    if not options.quick:
        yield StudyFigure(
            "pictures",
            "Accuracy over scenario time",
            lambda: draw_courses(found.courses, pictures=True),
            "Softmax regression, means over the seeds. Speed and data are independent here.",
        )


_TABLE = (
    "Means over the seeds. The gap is a share of that at the optimum of the fast devices; the pull "
    "should be 0.2, as is the weight of synchronous training. The slow excess is the loss on the "
    "slow devices' data above that at the optimum of all. The target is a gap of 0.1; bytes are "
    "those of updates up until then. The slow loss is the loss on the slow devices' digits, in "
    "`linked`."
)
_NOTES = [
    (
        "The bias comes from how often a device's updates count, and not from their staleness: "
        "with curvature 1, the limit is Σ p_i θ_i, whatever the base versions were. The ledger has "
        "p_i: the shares of the weight by device."
    ),
    (
        "The bias of the buffered mode depends on the share of the fleet that works at a time. In "
        "a large fleet of which few devices work, devices are drawn almost evenly, and it is "
        "small. Where all devices work all the time, weights are proportional to speed."
    ),
    (
        "Opportunistic rounds are sometimes said to be unbiased because no update is lost. But a "
        "device that still works is not called, so slow devices are called less often."
    ),
]
