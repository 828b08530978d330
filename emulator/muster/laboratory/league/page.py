"""Writes a league: league.html with a table that can be sorted, league.md, and league.csv with the
model of every run."""

import base64
import hashlib
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from markupsafe import Markup

from muster.common.files import write_atomic
from muster.emulator.comparison.tables import ENDS, Column, cell
from muster.emulator.live.page_files import templates
from muster.emulator.records.intervals import Interval
from muster.emulator.records.summary import clean
from muster.emulator.records.tabular import Table, aligned, markdown
from muster.emulator.report.page import stylesheet
from muster.laboratory.league.plan import BASELINE
from muster.laboratory.league.standings import League, Standing

PAGE, MARKDOWN, CELLS = "league.html", "league.md", "league.csv"

_HERE = Path(__file__).parent

_HOURS = Column("scenario hours", places=lambda most: 2)
_COLUMNS: Mapping[str, tuple[Column, bool]] = {
    "accuracy": (ENDS["accuracy"], False),
    "difference": (Column(f"to {BASELINE}", ENDS["accuracy"].unit, difference="points"), True),
    "worst": (Column("worst group", ENDS["accuracy"].unit), False),
    "rounds": (Column("rounds to target"), False),
    "hours": (_HOURS, False),
    "bytes_up": (Column("sent up", ENDS["bytes"].unit), False),
}
"""The columns, by the name of a measure, and whether numbers have a sign."""

_FILES = {PAGE: "table that can be sorted", MARKDOWN: "tables", CELLS: "models of all runs"}


def write_pages(league: League) -> None:
    """Write league.html, league.md and league.csv."""
    cells = league.cells.to_csv(index=False, float_format="%.6f")
    write_atomic(league.folder / CELLS, cells.encode())
    played = {s.scenario: s.folder for s in league.standings if s.rule == BASELINE}
    text = markdown_of(league, lambda name: f"{played[name]}/scenario.toml")
    write_atomic(league.folder / MARKDOWN, text.encode())
    write_atomic(league.folder / PAGE, _html(league).encode())


def _texts(standing: Standing) -> dict[str, str]:
    """The cells of a standing by measure; empty texts if the rule is refused."""
    if not standing.runs:
        return dict.fromkeys(_COLUMNS, "")
    return {
        measure: cell(_estimate(getattr(standing, measure)), column, standing.runs, signed)
        for measure, (column, signed) in _COLUMNS.items()
    }


def _estimate(found: Interval) -> dict[str, float]:
    return {"n": found.n, "mean": found.mean, "high": found.mean + found.half}


def _html(league: League) -> str:
    script = (_HERE / "sorting.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    rows = [
        {
            "scenario": s.scenario,
            "rule": clean(s.rule),
            "cells": [(_value(s, measure), text) for measure, text in _texts(s).items()],
            "models": s.models,
            "folder": s.folder,
            "why": clean(s.why),
        }
        for s in league.standings
    ]
    titles = [column.title for column, _ in _COLUMNS.values()]
    return (
        templates(_HERE)
        .get_template("league.html")
        .render(
            hash=f"sha256-{digest}",
            style=Markup(stylesheet()),
            script=Markup(script),
            about=_about(league),
            facts=_facts(league),
            baseline=BASELINE,
            columns=["scenario", "rule", *titles, "models", "why not"],
            rows=rows,
            scenarios=league.plan.about,
        )
    )


def _value(standing: Standing, measure: str) -> str:
    mean = getattr(standing, measure).mean
    return "" if math.isnan(mean) else repr(mean)


def _about(league: League) -> str:
    return (
        f"Aggregators with their default settings, played in virtual time. Means over the seeds "
        f"with 95 % confidence intervals. The target is an accuracy of {league.plan.target:.0%}; "
        f"the worst group is measured on the examples of its devices."
    )


def _facts(league: League) -> list[tuple[str, str]]:
    cells = league.cells
    ended = int(cells["model"].notna().sum())
    return [
        ("status", league.status),
        ("scenarios", str(len(league.plan.scenarios))),
        ("rules", str(len(league.plan.rules))),
        ("seeds", str(cells["seed"].nunique())),
        ("runs", f"{ended} of {len(cells)}"),
    ]


def matrix_of(league: League) -> Table:
    """How far the accuracy of every rule is from that of the baseline, in points: a row for each
    rule and a column for each scenario. Differences whose interval excludes 0 are bold."""
    found = {(s.scenario, s.rule): s for s in league.standings}
    scenarios = list(league.plan.scenarios)
    rows = [
        [clean(rule), *(_point(found[scenario, rule]) for scenario in scenarios)]
        for rule in league.plan.rules
    ]
    return Table(f"Accuracy; differences to {BASELINE} in points", ["rule", *scenarios], rows)


def _point(standing: Standing) -> str:
    if not standing.runs:
        return "refused"
    if not standing.accuracy.n:
        return "–"
    if standing.rule == BASELINE:
        return f"{100 * standing.accuracy.mean:.1f} %"
    mean, half = 100 * standing.difference.mean, 100 * standing.difference.half
    text = f"{mean:+.1f} ± {half:.1f}" if math.isfinite(half) else f"{mean:+.1f}"
    return f"**{text}**" if abs(mean) > half else text


def markdown_of(league: League, link: Callable[[str], str], made: str = "") -> str:
    """All tables as Markdown.

    Args:
        link: where the file of a scenario is.
        made: what is to be said about where the league was played.
    """
    facts = "; ".join(f"{label}: {value}" for label, value in _facts(league))
    matrix = matrix_of(league)
    parts = ["# League", made, _about(league), facts, f"## {matrix.title}", markdown(matrix)]
    titles = [column.title for column, _ in _COLUMNS.values()]
    for name, about in league.plan.about.items():
        standings = [s for s in league.standings if s.scenario == name]
        rows = [[clean(s.rule), *_texts(s).values(), f"`{s.models}`"] for s in standings if s.runs]
        table = Table(name, ["rule", *titles, "models"], rows)
        parts += [f"## {name}", f"{about} ([{name}.toml]({link(name)}))", markdown(table)]
        parts += ["\n".join(f"- {clean(s.rule)}: {clean(s.why)}" for s in standings if s.why)]
    return "\n\n".join(filter(None, parts)) + "\n"


def describe(league: League) -> str:
    """Describe a league in lines: its matrix, and where its files are."""
    matrix = matrix_of(league)
    header, *rows = [list(row) for row in zip(matrix.header, *matrix.rows, strict=True)]
    there = [[what, str(league.folder / file)] for file, what in _FILES.items()]
    plain = [[text.replace("**", "") for text in row] for row in (header, *rows)]
    facts = "; ".join(f"{label}: {value}" for label, value in _facts(league))
    refused = [f"{s.scenario}, {clean(s.rule)}: {clean(s.why)}" for s in league.standings if s.why]
    return "\n".join([facts, "", matrix.title, *aligned(plain), "", *refused, "", *aligned(there)])


def numbers_of(league: League) -> dict[str, Any]:
    """The result as values for programs; docs/commands.md explains every key."""
    return {
        "status": league.status,
        "target": league.plan.target,
        "standings": [
            {
                "scenario": s.scenario,
                "rule": s.rule,
                "runs": s.runs,
                **{m: [getattr(s, m).mean, getattr(s, m).half, getattr(s, m).n] for m in _COLUMNS},
                "models": s.models,
                "why": s.why,
            }
            for s in league.standings
        ],
        "cells": league.cells.to_dict("records"),
    }
