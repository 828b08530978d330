"""The plan of a comparison: every variant with every seed, read and checked before the first run.

A variant is the scenario with other values for the varied keys. The same seed draws the same random
streams in every variant, so runs of one seed are a pair and their difference is less noisy.
"""

import itertools
import json
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from muster.common.errors import ConfigError
from muster.emulator.comparison.variants import folder_names, labels_of, value_text
from muster.emulator.launch import doctor
from muster.emulator.scenario.reading import read_scenario, settled
from muster.emulator.scenario.scenario import Scenario


@dataclass(frozen=True, slots=True)
class ComparisonRun:
    """One run of a comparison.

    Attributes:
        variant: name of the variant, for example "local_epochs=3".
        settings: varied key to its value.
        folder: name of the run folder inside the comparison's.
    """

    variant: str
    settings: Mapping[str, Any]
    seed: int
    folder: str
    scenario: Scenario

    @property
    def title(self) -> str:
        return f"{self.variant} seed={self.seed}"


@dataclass(frozen=True, slots=True)
class ComparisonPlan:
    """All runs of a comparison, in order: seed after seed, so that pairs are complete early."""

    name: str
    runs: Sequence[ComparisonRun]

    @property
    def variants(self) -> list[str]:
        return list(dict.fromkeys(run.variant for run in self.runs))

    def to_json(self) -> str:
        """The plan as JSON, with every scenario in full, so that it is enough to resume from."""
        runs = [
            {
                "variant": run.variant,
                "settings": run.settings,
                "seed": run.seed,
                "folder": run.folder,
                "scenario": tomllib.loads(run.scenario.to_toml()),
            }
            for run in self.runs
        ]
        return json.dumps({"name": self.name, "runs": runs}, indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes, source: str) -> "ComparisonPlan":
        """Read a plan that `to_json` wrote.

        Raises:
            ConfigError: the text is not a plan, or a scenario in it is no longer valid.
        """
        try:
            values = orjson.loads(text)
            runs = [
                ComparisonRun(**{**run, "scenario": settled(run["scenario"], source)})
                for run in values["runs"]
            ]
            return cls(values["name"], runs)
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"{source}: expected the plan that `muster compare` wrote, found: {error!r}; "
                f"restore the file, or compare anew"
            ) from None


def make_plan(
    scenario: Path,
    vary: Mapping[str, Sequence[Any]],
    seeds: int = 1,
    settings: Sequence[str] = (),
    data: str | None = None,
) -> ComparisonPlan:
    """Read every variant, and check that this machine can run it.

    Args:
        vary: dotted key to its values; with several keys, every combination is run.
        seeds: number of seeds: the scenario's own and those that follow it.
        settings, data: as for `read_scenario`, for all variants.

    Raises:
        ConfigError: names every mistake of every variant.
    """
    _check_request(vary, seeds)
    variants = [
        dict(zip(vary, values, strict=True)) for values in itertools.product(*vary.values())
    ]
    labels = labels_of(variants)
    scenarios = _read_all(scenario, dict(zip(labels, variants, strict=True)), settings, data)
    folders = folder_names(labels)
    runs = [
        ComparisonRun(
            label,
            variant,
            read.seed + number,
            f"{folder}-seed{read.seed + number}",
            read.model_copy(update={"seed": read.seed + number}),
        )
        for number in range(seeds)
        for label, variant, folder, read in zip(labels, variants, folders, scenarios, strict=True)
    ]
    return ComparisonPlan(scenarios[0].name, runs)


def _check_request(vary: Mapping[str, Sequence[Any]], seeds: int) -> None:
    if not vary:
        raise ConfigError(
            "expected something to vary, for example --vary training.local_epochs=1,5"
        )
    if seeds < 1:
        raise ConfigError(f"--seeds: expected at least 1, found {seeds}")
    for key, values in vary.items():
        texts = Counter(value_text(value) for value in values)
        if not texts:
            raise ConfigError(f"--vary {key}: expected values, found none")
        if twice := sorted(text for text, times in texts.items() if times > 1):
            raise ConfigError(f"--vary {key}: {', '.join(twice)} comes twice; name a value once")
        if key == "seed":
            raise ConfigError("--vary seed: seeds are not variants but repeat them; use --seeds K")


def _read_all(
    path: Path, variants: Mapping[str, dict[str, Any]], settings: Sequence[str], data: str | None
) -> list[Scenario]:
    scenarios: list[Scenario] = []
    wrong: dict[str, list[str]] = {}
    for label, variant in variants.items():
        try:
            read = read_scenario(path, [*settings, *variant.items()], data)
            doctor.require(read)
            scenarios.append(read)
        except ConfigError as error:
            wrong.setdefault(str(error), []).append(label)
    if not wrong:
        return scenarios
    (message, labels), *more = wrong.items()
    if not more and len(labels) == len(variants):  # all variants have the same mistake
        raise ConfigError(message)
    found = [f"{', '.join(labels)}: {message}" for message, labels in wrong.items()]
    count = sum(map(len, wrong.values()))
    raise ConfigError("\n".join([f"{count} of {len(variants)} variants cannot be run", *found]))
