"""What a run would have been with other settings: it is played again from its life record.

With the grade `arrivals`, the same devices train in every round of the played run, and the same
updates count, as in the recorded run. Without a change it ends with the same model, bit for bit. So
what a change does is not mixed with who happened to be there: the difference of the two runs is
paired. Other grades keep less, and answer more (`grades.py`).
"""

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from muster.common.errors import ConfigError
from muster.common.files import write_atomic
from muster.common.life_record import LifeRecord, write_life
from muster.emulator.comparison import tables as compared
from muster.emulator.comparison.comparing import run_plan
from muster.emulator.comparison.comparison import Comparison
from muster.emulator.comparison.plan import ComparisonPlan, ComparisonRun
from muster.emulator.comparison.run_set import PLAN, Watch, unwatched
from muster.emulator.comparison.variants import folder_names, labels_of
from muster.emulator.records.inputs import MAY_CHANGE, leave_out
from muster.emulator.records.life import life_of_run
from muster.emulator.records.manifest import intact_folder
from muster.emulator.records.summary import clean, percent_text
from muster.emulator.records.tabular import aligned
from muster.emulator.run_folder.folder import LEDGER, SCENARIO, making, new_folder
from muster.emulator.runs.supervisor import Show
from muster.emulator.scenario.reading import read_scenario, setting_value
from muster.emulator.scenario.scenario import Scenario
from muster.laboratory.grades import GRADES, Grade
from muster.laboratory.replay import changed_code, made_elsewhere, played_scenario, uncertain
from muster.simulation.whole_run import simulate_run

if TYPE_CHECKING:
    import pandas as pd

RECORDED, UNCHANGED = "recorded", "unchanged"
"""The names of the variants that are the recorded runs, and these runs played without a change."""


@dataclass(frozen=True)
class WhatIf:
    """The results of a what-if.

    Attributes:
        grade: what was taken from the records.
        comparison: the recorded runs, as its first variant, beside the played ones.
        pairs: one row for every played run: variant, seed, whether its model is that of the
            recorded run (`same_model`; None: it has no model), and the number of rounds.
        represented: one row for every variant and group: the share of the weight that its updates
            had, as the mean over the versions of all runs.
        uncertain: the number of recorded calls for which a device may have trained without a known
            update, if devices go on from what training has left on them; else 0.
        elsewhere: whether some recorded run was made on a machine with another fingerprint, so that
            the bits of a model may differ although nothing was changed.
        unknown: by variant, the number of calls to devices of which the records know nothing in
            that round, so that they declined; empty: there was none.
        changed_code: the files with code of the user's own that have changed since the runs were
            recorded. The played runs have the code of now.
    """

    grade: Grade
    comparison: Comparison
    pairs: "pd.DataFrame"
    represented: "pd.DataFrame"
    uncertain: int
    elsewhere: bool
    unknown: Mapping[str, int]
    changed_code: Sequence[str] = ()

    @property
    def same_model(self) -> bool:
        """Whether all played runs have ended with the models of the recorded ones."""
        return bool(self.pairs["same_model"].eq(True).all())


def what_if(
    runs: Sequence[Path | str],
    *,
    settings: Sequence[str] = (),
    vary: Mapping[str, Sequence[Any]] | None = None,
    grade: str = "arrivals",
    data: str | None = None,
    out: Path | str | None = None,
    figures: str = "png",
    watch: Watch = unwatched,
) -> WhatIf:
    """Play recorded runs again, with other settings, and compare each with its record.

    Args:
        runs: run folders, with different seeds.
        settings: `key=value` as for `--set`: what is changed in every played run.
        vary: dotted key to its values; every combination is a variant.
        grade: what is taken from the record: `arrivals`, `life` or `resimulated`.
        data: the data directory.
        out: the folder to make; default `runs/<name>-what-if-<time>`.
        figures: "svg" or "pdf" for the figure of this kind, too.
        watch: shows the runs.

    Raises:
        ConfigError: a run cannot be played with these settings; nothing was started.
        LedgerError: the ledger of a run is damaged.
    """
    graded = _grade(grade)
    folders = [intact_folder(Path(run)).resolve() for run in runs]
    records = [life_of_run(folder) for folder in folders]
    code = sorted({file for folder in folders for file in changed_code(folder)})
    recorded = [read_scenario(folder / SCENARIO, data=data) for folder in folders]
    _require_different_seeds(folders, recorded)
    _require_one_scenario(folders, recorded)
    name = f"{recorded[0].name}-what-if"
    place = new_folder(name, None if out is None else Path(out), None).resolve()
    variants = list(_variants(settings, vary or {}))
    labels = labels_of(variants) if variants[0] else [UNCHANGED]
    lives = [place / f"seed{scenario.seed}.life.csv.gz" for scenario in recorded]
    planned = []
    for folder, record, scenario, life in zip(folders, records, recorded, lives, strict=True):
        planned.append(ComparisonRun(RECORDED, {}, scenario.seed, str(folder), scenario))
        for label, within, variant in zip(labels, folder_names(labels), variants, strict=True):
            changes: list[str | tuple[str, Any]] = [*settings, *variant.items()]
            changed = played_scenario(folder, record, life, graded, changes, data)
            run = f"{within}-seed{scenario.seed}"
            planned.append(ComparisonRun(label, variant, scenario.seed, run, changed))
    plan = ComparisonPlan(recorded[0].name, planned)
    with making(place):
        write_atomic(place / PLAN, plan.to_json().encode())
        for life, record in zip(lives, records, strict=True) if graded.recorded else ():
            write_life(life, record)
    comparison = run_plan(place, plan, figures, watch, play=_play)
    pairs = zip(records, recorded, strict=True)
    unsure = sum(uncertain(*pair) for pair in pairs) if graded.recorded else 0
    lived = dict(zip((scenario.seed for scenario in recorded), records, strict=True))
    unknown = _unknown(comparison, lived) if graded.name == "life" else {}
    return replace(_results(graded, comparison, folders, unsure, unknown), changed_code=code)


def _variants(
    settings: Sequence[str], vary: Mapping[str, Sequence[Any]]
) -> Iterator[dict[str, Any]]:
    """The settings of every variant; what is only set, and not varied, names the one variant."""
    if not vary:
        yield {
            key: setting_value(text)
            for key, _, text in (setting.partition("=") for setting in settings)
        }
        return
    for values in itertools.product(*vary.values()):
        yield dict(zip(vary, values, strict=True))


def _grade(name: str) -> Grade:
    if name not in GRADES:
        raise ConfigError(f"--grade: expected {', '.join(GRADES)}, found {name}")
    return GRADES[name]


def _require_different_seeds(folders: Sequence[Path], scenarios: Sequence[Scenario]) -> None:
    seeds = [scenario.seed for scenario in scenarios]
    if twice := [seed for seed in dict.fromkeys(seeds) if seeds.count(seed) > 1]:
        raise ConfigError(
            f"expected runs with different seeds, found seed {twice[0]} in "
            f"{' and '.join(str(f) for f, s in zip(folders, seeds, strict=True) if s == twice[0])}"
        )


def _require_one_scenario(folders: Sequence[Path], scenarios: Sequence[Scenario]) -> None:
    """Check that the runs differ in nothing that decides them but their seeds."""
    bound = []
    for scenario in scenarios:
        values = scenario.model_dump(mode="json")
        leave_out(values, ("name", "seed", *MAY_CHANGE))
        bound.append(values)
    for folder, values in zip(folders, bound, strict=True):
        other = sorted(name for name, value in values.items() if value != bound[0][name])
        if other:
            raise ConfigError(
                f"expected runs of one scenario, which differ in their seeds alone; {folder} has "
                f"other settings of {', '.join(other)} than {folders[0]}. Ask about each "
                f"of them by itself"
            )


def _play(folder: Path, scenario: Scenario, *, show: Show) -> str:
    """Play a run in virtual time, in this process."""
    return simulate_run(scenario, folder)


def _unknown(comparison: Comparison, records: Mapping[int, LifeRecord]) -> dict[str, int]:
    """By variant, the number of answers of devices of which the records know nothing.

    Args:
        records: by seed.
    """
    from muster.emulator.records.account import Account

    known = {
        seed: {(row.round, row.client) for row in record.rows} for seed, record in records.items()
    }
    found = Counter[str]()
    for run in comparison.runs.to_dict("records"):
        folder = comparison.folder / run["folder"]
        if run["variant"] == RECORDED or not (folder / LEDGER).exists():
            continue
        with Account(folder) as account:
            calls = zip(account.answers["round"], account.answers["client"], strict=True)
            found[run["variant"]] += sum(call not in known[run["seed"]] for call in calls)
    return {variant: number for variant, number in found.items() if number}


def _results(
    grade: Grade,
    comparison: Comparison,
    folders: Sequence[Path],
    uncertain: int,
    unknown: Mapping[str, int],
) -> WhatIf:
    import pandas as pd

    runs = comparison.runs
    models = runs[runs["variant"] == RECORDED].set_index("seed")["model_sha256"]
    played = runs[runs["variant"] != RECORDED]
    pairs = played[["variant", "seed", "rounds"]].reset_index(drop=True)
    made = zip(played["model_sha256"].tolist(), played["seed"].map(models).tolist(), strict=True)
    same = [bool(model == other) if isinstance(model, str) else None for model, other in made]
    pairs.insert(2, "same_model", pd.Series(same, dtype=object))
    places = zip(runs["folder"].tolist(), runs["variant"].tolist(), strict=True)
    shares = [
        _shares(comparison.folder / folder, variant)
        for folder, variant in places
        if (comparison.folder / folder / LEDGER).exists()
    ]
    represented = (
        pd.concat(shares).groupby(["variant", "group"], sort=False)["share"].mean().reset_index()
    )
    elsewhere = any(map(made_elsewhere, folders))
    return WhatIf(grade, comparison, pairs, represented, uncertain, elsewhere, unknown)


def _shares(folder: Path, variant: str) -> "pd.DataFrame":
    """The share of every group in the weight of every version of a run."""
    from muster.emulator.records.account import Account

    with Account(folder) as account:
        folded = account.contributions.query("outcome == 'folded'")
        groups = account.clients.set_index("client")["group"]
    weights = folded.assign(group=folded["client"].map(groups)).pivot_table(
        index="round", columns="group", values="weight", aggfunc="sum", fill_value=0.0
    )
    shares = weights.div(weights.sum(axis="columns"), axis="index").mean()
    return shares.rename_axis("group").rename("share").reset_index().assign(variant=variant)


def describe(found: WhatIf) -> str:
    """Describe a what-if in lines: whether the models are the same, and what differs."""
    table = found.represented.pivot_table(
        index="variant", columns="group", values="share", sort=False
    )
    shares = [[str(name), *map(percent_text, row)] for name, row in table.iterrows()]
    return "\n".join(
        [
            compared.describe(found.comparison),
            "",
            "Share of the weight by group, as the mean over the versions",
            *aligned([["", *map(str, table.columns)], *shares]),
            "",
            *map(clean, _verdicts(found)),
            "",
            f"Grade {found.grade.name}: {found.grade.kept}.",
            *([f"Not kept: {found.grade.anew}."] if found.grade.anew else ()),
        ]
    )


def _verdicts(found: WhatIf) -> Iterator[str]:
    """What is to be said about the models, one sentence for each variant."""
    for variant, pairs in found.pairs.groupby("variant", sort=False):
        ended = pairs["same_model"].dropna()
        same, runs = int(ended.sum()), len(ended)
        if runs == len(pairs):
            yield f"{variant}: the same model as recorded in {same} of {runs} runs"
        else:
            left = f"{len(pairs) - runs} of {len(pairs)} runs"
            yield f"{variant}: the same model in {same} of {runs} runs; {left} have no model"
        if calls := found.unknown.get(str(variant)):
            yield (
                f"  {calls} calls were to devices of which the record knows nothing in that round; "
                f"they declined"
            )
        if found.changed_code and same < runs:
            yield (
                f"  {', '.join(found.changed_code)} has changed since the run was recorded; the "
                f"played runs have the code of now"
            )
        if variant != UNCHANGED or same == runs:
            continue
        if found.uncertain:
            yield (
                f"  for {found.uncertain} calls a device may have trained without a known update, "
                f"and it goes on from what that left on it"
            )
        if found.elsewhere:
            yield (
                "  a recorded run was made with another version of torch or on another processor, "
                "where sums have other roundings, so its bits cannot be expected here"
            )


def numbers_of(found: WhatIf) -> dict[str, Any]:
    """The result as values for programs; docs/commands.md explains every key."""
    return {
        "grade": found.grade.name,
        "kept": found.grade.kept,
        "not_kept": found.grade.anew,
        "unknown_calls": dict(found.unknown),
        "same_model": found.same_model,
        "uncertain_calls": found.uncertain,
        "made_elsewhere": found.elsewhere,
        "changed_code": list(found.changed_code),
        "pairs": found.pairs.to_dict("records"),
        "represented": found.represented.to_dict("records"),
        **compared.numbers_of(found.comparison),
    }
