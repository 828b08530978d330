"""The plan of a league: every scenario with every rule and every seed, checked before any run.

A rule that a scenario excludes has no runs there; the plan keeps the sentence that refuses it.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from muster.common.errors import ConfigError
from muster.common.installation import VERSION
from muster.common.own_code import use
from muster.emulator.comparison.plan import ComparisonPlan, ComparisonRun
from muster.emulator.comparison.variants import folder_names, parse_vary, value_text
from muster.emulator.scenario.reading import read_scenario
from muster.emulator.scenario.scenario import Scenario
from muster.server.aggregators import AGGREGATORS
from muster.simulation.whole_run import require_simulated

SCENARIOS = Path(__file__).parent / "scenarios"

BASELINE = "fedavg"
"""The rule with which all others are compared."""

RULES = (
    BASELINE, "fedadam", "fedvarp", "mifa", "fedipw", "median", "trimmed-mean", "multi-krum",
    "q-fedavg", "scaffold",
)  # fmt: skip

SEEDS, FIRST_SEED = 5, 201


@dataclass(frozen=True, slots=True)
class ChosenRule:
    """An aggregator, as a person has named it.

    Attributes:
        value: what `server.aggregator` of a scenario has: a name, or a table with `kind`.
        modules: the folder of the file that has it, if it is the person's own.
    """

    value: Any
    modules: str | None = None

    @property
    def label(self) -> str:
        return value_text(self.value)

    @property
    def settings(self) -> list[tuple[str, Any]]:
        found: list[tuple[str, Any]] = [("server.aggregator", self.value)]
        return found if self.modules is None else [*found, ("modules", self.modules)]


@dataclass(frozen=True, slots=True)
class LeagueRun:
    """One run of a league.

    Attributes:
        within: the name of its scenario, and the folder of that comparison.
    """

    within: str
    run: ComparisonRun

    @property
    def folder(self) -> str:
        return f"{self.within}/{self.run.folder}"

    @property
    def title(self) -> str:
        return f"{self.within} {self.run.title}"

    @property
    def scenario(self) -> Scenario:
        return self.run.scenario

    @property
    def expected_s(self) -> float:
        return float(self.scenario.server.rounds * self.scenario.devices)


@dataclass(frozen=True)
class LeaguePlan:
    """All runs of a league.

    Attributes:
        scenarios: the comparison of every scenario, by its name.
        about: what every scenario is, in a sentence.
        rules: the names of all rules, the baseline first.
        refused: scenario and rule to why the rule is refused there.
        target: the accuracy until which rounds are counted.
    """

    scenarios: Mapping[str, ComparisonPlan]
    about: Mapping[str, str]
    rules: Sequence[str]
    refused: Mapping[tuple[str, str], str]
    target: float

    @property
    def cells(self) -> list[LeagueRun]:
        """All runs, in order."""
        return [LeagueRun(name, run) for name, plan in self.scenarios.items() for run in plan.runs]

    def to_json(self) -> str:
        """The plan as JSON, with every scenario in full, so that it is enough to resume from."""
        values = {
            "muster": VERSION,
            "target": self.target,
            "rules": list(self.rules),
            "about": dict(self.about),
            "refused": [[*place, why] for place, why in self.refused.items()],
            "league": {name: json.loads(plan.to_json()) for name, plan in self.scenarios.items()},
        }
        return json.dumps(values, indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes, source: str) -> "LeaguePlan":
        """Read a plan that `to_json` wrote.

        Raises:
            ConfigError: the text is not a plan, or a scenario in it is no longer valid.
        """
        try:
            values = orjson.loads(text)
            plans = {
                name: ComparisonPlan.from_json(json.dumps(plan), source)
                for name, plan in values["league"].items()
            }
            refused = {(scenario, rule): why for scenario, rule, why in values["refused"]}
            return cls(plans, values["about"], values["rules"], refused, values["target"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(
                f"{source}: expected the plan that `muster league` wrote, found: {error!r}; "
                f"restore the file, or begin anew"
            ) from None


def make_plan(
    rules: Sequence[str] = (),
    scenarios: Sequence[str] = (),
    seeds: int = SEEDS,
    first_seed: int = FIRST_SEED,
    target: float = 0.8,
    data: str | None = None,
) -> LeaguePlan:
    """Read every scenario with every rule.

    Args:
        rules: texts with rules between commas, each as after `server.aggregator =` of a scenario,
            or `FILE.py:Class`; empty: `RULES`.
        scenarios: names of scenarios of the league, or paths; empty: all.
        first_seed: the first of `seeds` consecutive seeds.
        target, data: as for `LeaguePlan` and `read_scenario`.

    Raises:
        ConfigError: a rule or a scenario is wrong or is not there.
    """
    if seeds < 1:
        raise ConfigError(f"--seeds: expected at least 1, found {seeds}")
    chosen = _rules(rules or [",".join(RULES)])
    found, about, refused = {}, {}, {}
    for name, path in _paths(scenarios).items():
        runs = dict[str, Scenario]()
        for rule in chosen:
            try:
                runs[rule.label] = _read(path, rule, data)
            except ConfigError as error:
                if rule.label == BASELINE:
                    raise
                refused[name, rule.label] = _sentence(error, path)
        found[name] = ComparisonPlan(name, list(_runs(runs, seeds, first_seed)))
        about[name] = _about(path)
    return LeaguePlan(found, about, [rule.label for rule in chosen], refused, target)


def _read(path: Path, rule: ChosenRule, data: str | None) -> Scenario:
    read = read_scenario(path, rule.settings, data)
    require_simulated(read)
    return read


def _runs(rules: Mapping[str, Scenario], seeds: int, first: int) -> Iterator[ComparisonRun]:
    folders = folder_names(list(rules))
    for seed in range(first, first + seeds):
        for (label, scenario), folder in zip(rules.items(), folders, strict=True):
            seeded = scenario.model_copy(update={"seed": seed})
            yield ComparisonRun(label, {}, seed, f"{folder}-seed{seed}", seeded)


def _rules(texts: Sequence[str]) -> list[ChosenRule]:
    """The rules that a person has named, the baseline first and none twice."""
    values = [value for text in texts for value in parse_vary([f"rules={text}"])["rules"]]
    rules = [_rule(value) for value in (BASELINE, *values)]
    places = sorted({rule.modules for rule in rules if rule.modules is not None})
    if len(places) > 1:
        raise ConfigError(f"--rules: expected files in one folder, found {' and '.join(places)}")
    if places:
        use(places[0])
    for rule in rules:
        try:
            AGGREGATORS.parse(rule.value)
        except ValueError as error:
            raise ConfigError(f"--rules {rule.label}: {error}") from None
    return list({rule.label: rule for rule in rules}.values())


def _rule(value: Any) -> ChosenRule:
    """A rule from a name, or from a table with `kind`; the name may be `FILE.py:Class`."""
    table = dict(value) if isinstance(value, Mapping) else {"kind": value}
    file, colon, name = str(table.get("kind")).rpartition(":")
    if not (colon and file.endswith(".py")):
        return ChosenRule(value)
    path = Path(file).expanduser().resolve()
    if not path.is_file():
        raise ConfigError(f"--rules {file}:{name}: there is no file {path}; name another one")
    kind = f"{path.stem}:{name}"
    return ChosenRule({**table, "kind": kind} if len(table) > 1 else kind, str(path.parent))


def _paths(scenarios: Sequence[str]) -> dict[str, Path]:
    """The files of scenarios by name."""
    shipped = {path.stem: path for path in sorted(SCENARIOS.glob("*.toml"))}
    if not scenarios:
        return shipped
    found: dict[str, Path] = {}
    for text in (part.strip() for given in scenarios for part in given.split(",")):
        path = shipped.get(text) or Path(text)
        if not path.is_file():
            raise ConfigError(
                f"--scenarios: there is no {text!r}; expected a file, or one of "
                f"{', '.join(shipped)}"
            )
        if path.stem in found:
            raise ConfigError(f"--scenarios: {path.stem} comes twice; name a scenario once")
        found[path.stem] = path
    return found


def _sentence(error: ConfigError, path: Path) -> str:
    """Why a scenario refuses a rule, without what is the same for all."""
    lines = str(error).splitlines()
    mistakes = [line.strip() for line in (lines[1:] if lines[0].startswith(str(path)) else lines)]
    return " ".join(mistakes).removeprefix("server.aggregator: ")


def _about(path: Path) -> str:
    """The comment with which a scenario begins."""
    lines = path.read_text(encoding="utf-8").splitlines()
    comment = []
    for line in lines:
        if not line.startswith("# "):
            break
        comment.append(line.removeprefix("# "))
    return " ".join(comment)
