"""Writes the page of a study, study.html, and the same as Markdown, study.md."""

from collections.abc import Mapping, Sequence

import pandas as pd

from muster.common.files import write_atomic
from muster.emulator.comparison.run_set import PLAN
from muster.emulator.records.summary import bytes_text, clean, seconds_text
from muster.emulator.records.tabular import Table, markdown
from muster.emulator.report.figure_files import save_figure
from muster.emulator.report.page import write_page
from muster.emulator.report.section import ReportSection, ReportTable
from muster.studies import network, plan
from muster.studies.claims import Claim
from muster.studies.outcome import Studied
from muster.studies.tables import claims_table, frame_table

PAGE, MARKDOWN, FIGURES, NETWORK = "study.html", "study.md", "figures", "network"


def write_pages(studied: Studied, planned: plan.StudyPlan, runs: pd.DataFrame) -> None:
    """Write the figures, study.html and study.md.

    Args:
        runs: the table of `network.network_table`.
    """
    findings, folder = studied.findings, studied.folder
    assert findings is not None
    figures = {
        figure.name: save_figure(folder / FIGURES / f"{figure.name}.png", figure.draw())
        for figure in findings.figures
    }
    sections = sections_of(studied, planned, runs)
    write_page(folder / PAGE, studied.name, studied.status, sections, figures)
    write_atomic(folder / MARKDOWN, markdown_of(sections, figures).encode())


def sections_of(
    studied: Studied, planned: plan.StudyPlan, runs: pd.DataFrame
) -> list[ReportSection]:
    """The sections of the page, in order."""
    findings = studied.findings
    assert findings is not None
    found = [_headline(studied, planned, runs)]
    if findings.claims:
        found.append(ReportSection("Claims", _CLAIMS, table=claims_table(findings.claims)))
    if findings.checks:
        found.append(ReportSection("Checks", _CHECKS, table=claims_table(findings.checks)))
    if studied.problems:
        found.append(ReportSection("Runs without a result", table=_problems(studied.problems)))
    if findings.notes:
        found.append(ReportSection("Notes", points=[clean(note) for note in findings.notes]))
    found += [
        ReportSection(figure.title, figure.text, figure=figure.name) for figure in findings.figures
    ]
    found += [ReportSection(t.title, t.text, table=frame_table(t.frame)) for t in findings.tables]
    return [*found, _travelled(runs), _reasons(runs), _sizes(planned), _files(studied)]


_CHECKS = (
    "Statements that hold by construction: constants, identities, and what the account must say. A "
    "check that fails shows a mistake in the program, not in what the study claims."
)
_CLAIMS = (
    "The claims, and whether they hold in these runs. The rule names the kind of interval. A "
    "margin is the most by which a value may differ from the expected one."
)


def _headline(studied: Studied, planned: plan.StudyPlan, runs: pd.DataFrame) -> ReportSection:
    findings = studied.findings
    assert findings is not None
    study, options, total = planned.study, planned.options, runs.sum(numeric_only=True)
    ended = len(planned.runs) - len(studied.problems)
    facts = [
        ("status", studied.status),
        ("claims that hold", _share(findings.claims)),
        *([("checks that pass", _share(findings.checks))] if findings.checks else []),
        ("runs", f"{ended} of {len(planned.runs)}"),
        ("seeds", f"{options.seeds}, from {options.seed}"),
        ("travelled", bytes_text(total["bytes_up"] + total["bytes_down"])),
        ("in rounds", seconds_text(total["seconds"])),
        ("updates lost", f"{int(total['lost']):,} of {int(total['calls']):,}"),
    ]
    about = f"{study.about[:1].upper()}{study.about[1:]}."
    size = "Quick: runs are smaller and fewer than in the full study." if options.quick else ""
    parts = [about, study.paper and f"{study.paper}.", size, *study.remarks(options)]
    return ReportSection(clean(studied.name), clean(" ".join(filter(None, parts))), facts)


def _share(claims: Sequence[Claim]) -> str:
    return f"{sum(claim.holds for claim in claims)} of {len(claims)}"


def _problems(problems: Mapping[str, str]) -> ReportTable:
    rows = [[clean(title), clean(problem)] for title, problem in problems.items()]
    return ReportTable(["run", "why"], rows, words=2, wraps=True)


_COUNTS = ("runs", "rounds", "calls", "folded", "declined", "lost")


def _travelled(runs: pd.DataFrame) -> ReportSection:
    rows = [
        [
            clean(part),
            *(f"{int(row[name]):,}" for name in _COUNTS),
            bytes_text(row["bytes_up"]),
            bytes_text(row["bytes_down"]),
            seconds_text(row["seconds"]),
            seconds_text(row["wall_s"]),
        ]
        for part, row in network.by_part(runs).iterrows()
    ]
    columns = ["part", *_COUNTS, "up", "down", "in rounds", "from start to end"]
    text = (
        "A simulation has none of this: models and updates travelled through sockets, rounds "
        "waited for the last update, and some updates never counted."
    )
    note = f"{NETWORK}.csv has a row for every run."
    return ReportSection("What real networking added", text, table=ReportTable(columns, rows, note))


def _reasons(runs: pd.DataFrame) -> ReportSection:
    rows = [[clean(why), f"{count:,}"] for why, count in network.reasons(runs).items()]
    if not rows:
        return ReportSection("Losses", "None: every call led to a folded update.")
    text = (
        "Why calls led to no folded update, over all runs. The most frequent reason comes first. "
        "Declined calls may also occur in a simulation."
    )
    return ReportSection(
        "Losses", text, table=ReportTable(["what happened (reason)", "calls"], rows)
    )


def _sizes(planned: plan.StudyPlan) -> ReportSection:
    found = plan.sizes([run.run for run in planned.runs], planned.study.paper_sizes)
    table = ReportTable(found.header, found.rows, words=1)
    return ReportSection(found.title, "Minutes are estimates for two cores.", table=table)


_FILES = {
    PLAN: "every run with its whole scenario",
    plan.RUNS: "a run folder for every run; `muster report` draws its report",
    "claims.json": "the claims, for programs",
    "checks.json": "the checks, in the same form",
    f"{NETWORK}.csv": "traffic, seconds and losses of every run",
    FIGURES: "the figures of this page",
    PAGE: "this page",
    MARKDOWN: "the same as Markdown",
}


def _files(studied: Studied) -> ReportSection:
    findings = studied.findings
    assert findings is not None
    own = {f"{table.name}.csv": table.title for table in findings.tables}
    rows = [[name, what] for name, what in {**_FILES, **own}.items()]
    text = "The files in the folder of the study."
    table = ReportTable(["file", "what it is"], rows, words=2, wraps=True)
    return ReportSection("Files", text, table=table)


def markdown_of(sections: Sequence[ReportSection], figures: Mapping[str, Mapping[str, str]]) -> str:
    """The sections as Markdown; figures are linked."""
    parts = []
    for level, section in enumerate(sections):
        parts += [f"{'##' if level else '#'} {section.title}", section.text]
        parts.append("\n".join(f"- {point}" for point in section.points))
        parts.append("\n".join(f"- {label}: {value}" for label, value in section.facts))
        if section.figure:
            findings = figures[section.figure]["findings"]
            parts.append(f"![{findings}]({FIGURES}/{section.figure}.png)")
        if section.table:
            parts.append(markdown(Table("", section.table.columns, section.table.rows)))
            parts.append(section.table.note)
    return "\n\n".join(filter(None, parts)) + "\n"
