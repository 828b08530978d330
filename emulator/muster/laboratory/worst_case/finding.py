"""`muster worst`: finds the schedule that harms a rule most, and compares it with random ones."""

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from muster.common.config import validate
from muster.common.errors import ConfigError, RunFailed
from muster.common.files import write_atomic
from muster.common.life_record import LifeRecord, read_life, write_life
from muster.emulator.fleet.lives import by_group, task_of
from muster.emulator.planning.plan import plan
from muster.emulator.records.intervals import interval
from muster.emulator.records.life import life_of_run
from muster.emulator.run_folder.folder import making, new_folder
from muster.emulator.scenario.population import Resident, population
from muster.emulator.scenario.reading import read_scenario
from muster.emulator.scenario.scenario import Scenario
from muster.laboratory.worst_case.families import FAMILIES, usual_family
from muster.laboratory.worst_case.library import Library
from muster.laboratory.worst_case.measure import FinalMeasure, measure_of
from muster.laboratory.worst_case.playing import Player, as_played, playing
from muster.laboratory.worst_case.schedule import (
    Divisions,
    FaultSchedule,
    course_of,
    limit_of,
    struck,
)
from muster.laboratory.worst_case.search import search
from muster.laboratory.worst_case.shrinking import shrunk
from muster.laboratory.worst_case.words import in_words
from muster.simulation.whole_run import simulate_run
from muster.tasks.opening import open_task

QUESTION, LIBRARY, LIFE, SCENARIO_FILE, RESULT, FIGURE = (
    "worst.json", "played.jsonl", "life.csv.gz", "worst.toml", "result.json", "worst.png",
)  # fmt: skip
_UNDISTURBED, _PLAYED = "undisturbed", "worst"

FEWEST_RUNS = 20


@dataclasses.dataclass(frozen=True)
class WorstCase:
    """The result of a search.

    Attributes:
        against: the measure.
        without: the measure of the run without a schedule.
        worst: the measure with the schedule that was found and then made shorter.
        harm: how much worse it is.
        searched_harm: the largest harm of a schedule that was played. The schedule that was found
            has at least nine tenths of it, and is shorter to read.
        family_harm: the largest harm of a schedule of the family that the search played.
        random_mean, random_half, random_max: harm of the random schedules: the mean with half the
            width of its 95 % interval, and the largest.
        runs: the number of different schedules that were played.
        struck: how many calls the schedule strikes.
        limit: how many the budget allows.
        devices: whose calls it strikes.
        words: the schedule in words.
        model_sha256: the model at the end of the run with the schedule.
    """

    scenario: str
    rule: str
    family: str
    against: str
    budget: float
    without: float
    worst: float
    harm: float
    searched_harm: float
    family_harm: float
    random_mean: float
    random_half: float
    random_max: float
    runs: int
    struck: int
    limit: int
    devices: tuple[str, ...]
    words: str
    model_sha256: str

    @property
    def ratio(self) -> float:
        """The harm as a multiple of the mean harm of random schedules; NaN: that is not above 0, by
        its interval."""
        return self.harm / self.random_mean if self.random_mean > self.random_half else math.nan


def worst_of(
    scenario: Path,
    *,
    budget: float,
    against: str,
    family: str | None = None,
    rounds: int | None = None,
    runs: int = 200,
    seed: int = 1,
    settings: Sequence[str] = (),
    data: str | None = None,
    out: Path | None = None,
    processes: int = 2,
    begun: Callable[[Path], None] = lambda folder: None,
    watch: Callable[[int], None] = lambda played: None,
) -> tuple[WorstCase, Path]:
    """Find the worst schedule of a family, and return it with its folder. A folder with the same
    question is continued: what it has played is not played again.

    Args:
        scenario: the file of a scenario.
        against: `accuracy`, `loss`, or `group:NAME` for the loss of a group.
        family: the kind of schedules; None: groups if the scenario has several, else outages.
        rounds: in place of `server.rounds`.
        runs: how many schedules to search with; some more are played to make the result shorter.
        settings: `key=value` as for `--set`.
        begun: called with the folder, when it is made and a search can go on in it.
        watch: called with the number of schedules that were played.

    Raises:
        ConfigError: the question has no answer; nothing was started.
        RunFailed: a run failed, or the scenario of the worst case does not play it.
    """
    if family is not None and family not in FAMILIES:
        raise ConfigError(f"--family: expected one of {', '.join(FAMILIES)}, found {family!r}")
    if runs < FEWEST_RUNS:
        raise ConfigError(f"--runs: expected at least {FEWEST_RUNS}, found {runs}")
    if not 0 < budget <= 1:
        raise ConfigError(f"--budget: expected a share above 0 and up to 1, found {budget:g}")
    changes: list[str | tuple[str, Any]] = list(settings)
    if rounds is not None:
        changes.append(("server.rounds", rounds))
    plain = read_scenario(scenario, changes, data)
    measure = measure_of(against, plain)
    if measure.group is not None:
        changes.append(("server.evaluate_groups", True))
        plain = read_scenario(scenario, changes, data)
    _require_playable(plain)
    if measure.column == "accuracy" and not plain.task.has_accuracy:
        raise _unmeasured(measure)
    residents = population(plain)
    divisions = _divisions(plain, residents)
    family = family or usual_family(divisions)
    if why := FAMILIES[family].refusal(divisions):
        raise ConfigError(f"--family {family}: {why}")
    _require_budget(budget, _planned(plain))
    question = {
        "scenario": plain.to_toml(), "budget": budget, "against": against, "family": family,
        "runs": runs, "seed": seed,
    }  # fmt: skip
    place = _folder(plain.name, out, question)
    with making(place):
        record = _undisturbed(place, plain)
        course = course_of(record, budget, divisions)
        _require_budget(budget, len(course.cells))
        without = measure.value(place / _UNDISTURBED)
        if not math.isfinite(without):
            raise _unmeasured(measure)
        write_atomic(place / QUESTION, orjson.dumps(question))
    begun(place)
    player = Player(scenario.resolve(), changes, data, record, measure)
    with playing(player, processes) as plays:
        library = Library(place / LIBRARY, plays, watch)

        def harms(schedules: Sequence[FaultSchedule]) -> list[float]:
            return [measure.harm(value, without) for value in library.measures(schedules)]

        found = search(course, FAMILIES[family], harms, runs, seed)
        schedule, harm, largest = shrunk(course, found.worst, found.harm, harms)
    model = _write_worst(place, plain, record, schedule)
    again = measure.harm(measure.value(place / _PLAYED), without)
    # A search that was begun on another kind of processor has other roundings.
    if not math.isclose(again, harm, rel_tol=0.05, abs_tol=1e-6 * abs(without)):
        raise RunFailed(
            f"{place / SCENARIO_FILE} does not play the schedule that was found: expected a harm "
            f"of {harm:g}, found {again:g}; please report this"
        )
    mean = interval(found.random)
    sign = -1.0 if measure.column == "accuracy" else 1.0
    result = WorstCase(
        plain.name, plain.server.aggregator.kind, family, against, budget, without,
        without + sign * harm, harm, largest, found.of_family, mean.mean, mean.half,
        max(found.random), library.played, len(schedule.cells), course.limit,
        tuple(sorted({client for _, client in schedule.cells})), in_words(course, schedule), model,
    )  # fmt: skip
    values = dataclasses.asdict(result) | {"ratio": result.ratio}
    write_atomic(place / RESULT, orjson.dumps(values, option=orjson.OPT_INDENT_2))
    _draw(place / FIGURE, result, found.random)
    return result, place


def _require_playable(scenario: Scenario) -> None:
    if not scenario.clock.lockstep:
        raise ConfigError(
            f'clock.kind: whole runs are played in lockstep; expected "rounds", found '
            f"{scenario.clock.kind!r}"
        )
    if scenario.life is not None:
        raise ConfigError(
            "life: expected a scenario without a life record, because the schedule is one itself"
        )
    # Refuses what no record can say, such as the valuations that some rules need.
    values = scenario.model_dump(exclude_none=True) | {"life": {"record": "life.csv"}}
    values["clock"] = {**values["clock"], "kind": "rounds", "scale": 1.0}
    validate(Scenario, values, f"the scenario {scenario.name}, played from a record")


def _divisions(scenario: Scenario, residents: Sequence[Resident]) -> Divisions:
    enrolled = {
        group.name: [resident for resident in of_group if resident.enrolled]
        for group, of_group in by_group(scenario, residents)
    }
    groups = {name: [each.client for each in there] for name, there in enrolled.items() if there}
    classes = _classes(scenario, residents)
    return Divisions(groups, classes, scenario.server.mode.outlives_round())


def _classes(scenario: Scenario, residents: Sequence[Resident]) -> Mapping[str, Sequence[str]]:
    """By label, the enrolled devices that have more of it than of any other."""
    task = open_task(task_of(scenario, residents).to_json(), scenario.devices, scenario.seed)
    found: dict[str, list[str]] = {}
    for resident in residents:
        if not resident.enrolled:
            continue
        y = np.asarray(task.client(resident.index).y)
        if y.ndim != 1 or not np.issubdtype(y.dtype, np.integer) or not len(y):
            return {}
        label = str(Counter(y.tolist()).most_common(1)[0][0])
        found.setdefault(label, []).append(resident.client)
    return dict(sorted(found.items()))


def _planned(scenario: Scenario) -> int:
    """How many updates count by the plan of the scenario: in lockstep at least as many as in the
    run."""
    groups = plan(scenario).groups
    return sum(
        int((each.in_time if each.counting is None else each.counting.folded).sum())
        for each in groups
    )


def _require_budget(budget: float, cells: int) -> None:
    if limit_of(budget, cells) < 1:
        raise ConfigError(
            f"--budget: {budget:g} of {cells} device-rounds allows nothing to go wrong; expected "
            f"at least {_rounded_up(1 / max(1, cells)):.2g}"
        )


def _rounded_up(value: float) -> float:
    """To two digits."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return math.ceil(value / unit) * unit


def _unmeasured(measure: FinalMeasure) -> ConfigError:
    return ConfigError(
        f"--against: expected a measure of the scenario, found no {measure.column} of its last "
        f"version"
    )


def _folder(name: str, out: Path | None, question: Mapping[str, Any]) -> Path:
    """The folder of a question: a new one, or the one where it was begun."""
    if out is not None and (out / QUESTION).exists():
        try:
            begun = orjson.loads((out / QUESTION).read_bytes())
        except (OSError, orjson.JSONDecodeError) as error:
            raise ConfigError(f"{out / QUESTION}: expected JSON, found {error}") from None
        if begun != question:
            raise ConfigError(
                f"--out {out} has the search for another scenario or with other options; name "
                f"another folder"
            )
        return out.resolve()
    return new_folder(f"{name}-worst", out, None).resolve()


def _undisturbed(place: Path, scenario: Scenario) -> LifeRecord:
    """The record of the run without a schedule, which is played if it was not yet."""
    path = place / "undisturbed.csv.gz"
    if not path.exists():
        simulate_run(scenario, place / _UNDISTURBED)
        write_life(path, life_of_run(place / _UNDISTURBED))
    return read_life(path)


def _write_worst(place: Path, scenario: Scenario, record: LifeRecord, worst: FaultSchedule) -> str:
    """Write the life record and the scenario of the worst case, play it, and return the SHA-256 of
    its model."""
    write_life(place / LIFE, struck(record, worst))
    write_atomic(place / "plain.toml", scenario.to_toml().encode())
    played = read_scenario(place / "plain.toml", as_played(Path(LIFE)))
    (place / "plain.toml").unlink()
    write_atomic(place / SCENARIO_FILE, _relative(played.to_toml(), place).encode())
    simulate_run(read_scenario(place / SCENARIO_FILE), place / _PLAYED)
    summary = orjson.loads((place / _PLAYED / "summary.json").read_bytes())
    return str(summary["model_sha256"])


def _relative(text: str, place: Path) -> str:
    """The scenario with the record beside it."""
    return text.replace(str(place / LIFE), LIFE)


def _draw(path: Path, result: WorstCase, random: Sequence[float]) -> None:
    """Draw the harms of random schedules, and that of the worst one."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 3.2), layout="constrained")
    axes = figure.add_subplot()
    finite = [harm for harm in random if math.isfinite(harm)]
    axes.hist(finite, bins=min(20, max(4, len(finite) // 3)), color="#b8c4cc",
              label=f"{len(random)} random schedules")  # fmt: skip
    if math.isfinite(result.harm):
        axes.axvline(result.harm, color="#d55e00", label="worst found")
    axes.set_xlabel(f"harm to {result.against}")
    axes.set_ylabel("schedules")
    axes.set_title(f"{result.rule}: {result.words}"[:90], fontsize=9)
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    figure.savefig(path, dpi=150)
