"""Writes report.html, one page that opens from disk, without a network, and draws the figures on
request. The page's upper part is the live page with its data inside the file, and below are the
sections.

It reads only scenario.toml, summary.json, ledger.sqlite and journal.jsonl. A report can therefore
be written again later or on another machine, and also for a run that is going on or was killed.
"""

import base64
import io
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.figure import Figure

from muster.common.errors import ConfigError
from muster.common.files import write_atomic
from muster.emulator.live.page_files import INDEX, inlined, json_inside, templates
from muster.emulator.live.run_data import run_data
from muster.emulator.records.account import Account
from muster.emulator.records.summary import clean, outline, read_summary
from muster.emulator.report.faults import shade, shaded_rounds
from muster.emulator.report.figures import FIGURES
from muster.emulator.report.names import noting_names
from muster.emulator.report.section import ReportSection
from muster.emulator.report.sections import SECTIONS
from muster.emulator.run_folder.folder import shown

REPORT = "report.html"
FIGURE_KINDS = ("png", "svg", "pdf")

_HERE = Path(__file__).parent
_TEMPLATES = templates(_HERE)


def write_report(run_folder: Path, kind: str | None = "png") -> Path:
    """Write the report of a run into its folder and return the page's path.

    Args:
        kind: one of `FIGURE_KINDS`. The page shows PNG; figures of another kind are written beside
            them, for papers. None: nothing is drawn, which saves about a second.

    Raises:
        LedgerError: the folder has no ledger that can be read.
    """
    with Account(run_folder) as account:
        _remove_figures(run_folder)
        summary, figures = _summary(account), {}
        if kind is not None:
            (run_folder / "figures").mkdir(exist_ok=True)
        sections = [section for make in SECTIONS if (section := make(account, summary))]
        if kind is None:
            sections = _without_figures(sections, run_folder)
        else:
            names, spans = [s.figure for s in sections if s.figure], shaded_rounds(account)
            figures = {name: _draw(account, name, spans, kind) for name in names}
    path = run_folder / REPORT
    _write_report_page(path, summary, sections, figures)
    return path


def _remove_figures(run_folder: Path) -> None:
    """Remove the figures of an earlier report, which may have had more to show, and their folder if
    nothing else is in it."""
    for name in FIGURES:
        for kind in FIGURE_KINDS:
            _figure_path(run_folder, name, kind).unlink(missing_ok=True)
    with suppress(OSError):
        (run_folder / "figures").rmdir()


def _without_figures(sections: Sequence[ReportSection], folder: Path) -> list[ReportSection]:
    """The sections that say something without a figure, and how to draw the figures."""
    first, *others = sections
    kept = [section for section in others if not section.figure or section.table or section.points]
    if len(kept) < len(others) or any(section.figure for section in kept):
        draw = f"`muster report {shown(folder)}` draws the figures of the whole run here."
        first = replace(first, text=f"{first.text} {draw}".strip())
    return [replace(section, figure="") for section in (first, *kept)]


def _write_report_page(
    path: Path,
    summary: Mapping[str, Any],
    sections: Sequence[ReportSection],
    figures: Mapping[str, Mapping[str, str]],
) -> None:
    """Write the live page of the run with its data inside, and below it the sections."""
    status, data, why_not = clean(summary["status"]), None, ""
    try:
        data = json_inside(run_data(path.parent, status))
    except ConfigError as error:  # the folder has no scenario, or one of an early version
        why_not = clean(error)
    page = _TEMPLATES.get_template(INDEX).render(
        live=False,
        title=clean(summary["name"]),
        status=status,
        inlined=inlined(_style()),
        data=data,
        why_not=why_not,
        sections=[replace(sections[0], title="The whole run"), *sections[1:]],
        figures=figures,
    )
    write_atomic(path, page.encode())


def _style() -> str:
    return (_HERE / "sections.css").read_text(encoding="utf-8")


def _draw(
    account: Account, name: str, spans: Sequence[tuple[int, int]], kind: str
) -> dict[str, str]:
    """Write a figure, with shades on intervals of rounds; return what the page needs to show it."""
    with noting_names() as shortened:
        figure = FIGURES[name](account)
        shade(figure, spans)
        drawn = save_figure(_figure_path(account.folder, name), figure)
        if kind != "png":
            save_lines(_figure_path(account.folder, name, kind), figure, kind)
    full = [f"{clean(label)} is {clean(whole)}" for label, whole in sorted(shortened.items())]
    return drawn | {"names": "; ".join(full)}


def _figure_path(run_folder: Path, name: str, kind: str = "png") -> Path:
    return run_folder / "figures" / f"{name}.{kind}"


def write_page(
    path: Path,
    title: str,
    status: str,
    sections: Sequence[ReportSection],
    figures: Mapping[str, Mapping[str, str]],
) -> None:
    """Write a page that has only sections, such as that of a study.

    Args:
        status: status of the run or study; it colours the fact called "status".
        figures: name of each figure to what `save_figure` returned for it.
    """
    page = _TEMPLATES.get_template("page.html").render(
        title=title,
        status=status,
        style=Markup(_style()),
        sections=sections,
        figures=figures,
    )
    write_atomic(path, page.encode())


def _summary(account: Account) -> dict[str, Any]:
    """The summary of the account, completed from summary.json by what the ledger cannot know."""
    written = read_summary(account.folder)
    if written.get("rounds") != len(account.rounds):  # written before the run was resumed
        written = {}
    summary = outline(account, written.get("status"))
    return summary | {"model_sha256": written.get("model_sha256")}


def save_figure(path: Path, figure: Figure) -> dict[str, str]:
    """Write the figure into a PNG file; return what a page shows of it.

    Returns:
        source: a data URI.
        findings: the titles, for readers who do not see the figure.
        names: the full names of what is shortened in the figure; empty.
    """
    png = io.BytesIO()
    figure.savefig(png, format="png")
    write_atomic(path, png.getvalue())
    findings = [title for axes in figure.axes if (title := axes.get_title(loc="left"))]
    return {
        "source": f"data:image/png;base64,{base64.b64encode(png.getvalue()).decode()}",
        "findings": ". ".join(findings).replace("\n", " "),
        "names": "",
    }


def save_lines(path: Path, figure: Figure, kind: str) -> None:
    """Write the figure as lines and text; the same figure gives the same bytes."""
    file, date = io.BytesIO(), "Date" if kind == "svg" else "CreationDate"
    with rc_context({"svg.hashsalt": "muster"}):
        figure.savefig(file, format=kind, metadata={date: None})
    write_atomic(path, file.getvalue())
