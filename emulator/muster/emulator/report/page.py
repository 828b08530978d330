"""Writes report.html: the page of `muster live` with its data inside, which opens from disk and
without a network; and the figures as files, on request.

It reads only scenario.toml, summary.json, ledger.sqlite and journal.jsonl. A report can therefore
be written again later or on another machine, and also for a run that is going on or was killed.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
from markupsafe import Markup

from muster.common.errors import ConfigError
from muster.common.events import BY_MUSTER
from muster.common.exchange import Reason
from muster.common.files import write_atomic
from muster.emulator.live.page_files import INDEX, inlined, json_inside, templates
from muster.emulator.live.run_reader import run_data
from muster.emulator.records.account import Account
from muster.emulator.records.judging import measured_text
from muster.emulator.records.summary import clean, outline, percent_text, read_summary
from muster.emulator.report.chart import Chart
from muster.emulator.report.faults import shaded_rounds
from muster.emulator.report.figures import FIGURES
from muster.emulator.report.losses import Loss, lost_updates
from muster.emulator.report.section import ReportSection, Summary
from muster.emulator.report.sections import SECTIONS, headline

REPORT = "report.html"
FIGURE_KINDS = ("png", "svg", "pdf")

_HERE = Path(__file__).parent
_TEMPLATES = templates(_HERE)

Figures = Mapping[str, Sequence[Chart]]


def write_report(run_folder: Path, kind: str | None = None) -> Path:
    """Write the report of a run into its folder and return the page's path.

    Args:
        kind: one of `FIGURE_KINDS`: the figures are written as files of this kind, too.

    Raises:
        LedgerError: the folder has no ledger that can be read.
    """
    with Account(run_folder) as account:
        return report_account(account, summary_of(account), kind)


def report_account(account: Account, summary: Summary, kind: str | None = None) -> Path:
    """Write the report of an account that has been opened, and whose summary is known."""
    run_folder = account.folder
    _remove_figures(run_folder)
    sections = [section for make in SECTIONS if (section := make(account, summary))]
    figures = {s.figure: FIGURES[s.figure](account) for s in sections if s.figure}
    shaded = shaded_rounds(account)
    top = headline(account, summary), went_wrong(account, summary)
    path = run_folder / REPORT
    _write_report_page(path, clean(summary["status"]), top, sections, figures, shaded)
    if kind is not None:
        _write_figures(run_folder / "figures", figures, shaded, kind)
    return path


def _remove_figures(run_folder: Path) -> None:
    """Remove the figures of an earlier report, which may have had more to show, and their folder if
    nothing else is in it."""
    for name in FIGURES:
        for kind in FIGURE_KINDS:
            (run_folder / "figures" / f"{name}.{kind}").unlink(missing_ok=True)
    with suppress(OSError):
        (run_folder / "figures").rmdir()


def _write_figures(
    folder: Path, figures: Figures, shaded: Sequence[tuple[int, int]], kind: str
) -> None:
    # Imported only here, because matplotlib takes half a second to import.
    from muster.emulator.report.figure_files import draw, save

    folder.mkdir(exist_ok=True)
    for name, charts in figures.items():
        if charts:
            save(folder / f"{name}.{kind}", draw(charts, shaded))


def _write_report_page(
    path: Path,
    status: str,
    top: tuple[ReportSection, ReportSection],
    sections: Sequence[ReportSection],
    figures: Figures,
    shaded: Sequence[tuple[int, int]],
) -> None:
    """Write the live page of the run with its data inside, and the sections as further cards."""
    run, why_not = None, ""
    try:
        run = orjson.Fragment(run_data(path.parent, status))
    except ConfigError as error:  # the folder has no scenario, or one of an early version
        why_not = clean(error)
    inside = {"run": run, "figures": figures, "shaded": shaded}
    data = orjson.dumps(inside, option=orjson.OPT_SERIALIZE_NUMPY)
    page = _TEMPLATES.get_template(INDEX).render(
        live=False,
        title=top[0].title,
        status=status,
        inlined=inlined(stylesheet()),
        run=run is not None,
        data=json_inside(data),
        why_not=why_not,
        headline=top[0],
        went_wrong=top[1],
        sections=sections,
    )
    write_atomic(path, page.encode())


def stylesheet() -> str:
    return (_HERE / "sections.css").read_text(encoding="utf-8")


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
        figures: name of each figure to what `figure_files.save_figure` returned for it.
    """
    shown = {"status": status, "sections": sections, "figures": figures}
    write_atomic(path, rendered("page.html", title=title, **shown).encode())


def rendered(template: str, **values: Any) -> str:
    """A template of this folder with the style of sections and other values."""
    return _TEMPLATES.get_template(template).render(style=Markup(stylesheet()), **values)


def summary_of(account: Account) -> dict[str, Any]:
    """The summary of the account, completed from summary.json by what the ledger cannot know."""
    written = read_summary(account.folder)
    if written.get("rounds") != len(account.rounds):  # written before the run was resumed
        written = {}
    summary = outline(account, written.get("status"))
    return summary | {"model_sha256": written.get("model_sha256")}


TITLE = "What went wrong"

_MOST_NAMES = 3


def went_wrong(account: Account, summary: Summary) -> ReportSection:
    """The sentences, or one that says that there is nothing."""
    lost = lost_updates(account)
    # More calls than the goal needs are meant to be spare.
    unmeant = [each for each in lost if each[1] != Reason.GOAL_REACHED]
    points = [
        *_expectations(summary),
        *_faults(summary),
        *_deaths(account),
        *_lost(unmeant, int(account.rounds["called"].sum())),
        *_empty(summary),
        *_warnings(account),
    ]
    spare = "; some came when the goal was reached without them" if lost else ""
    text = "" if points else f"Nothing: every call led to an update that counted{spare}."
    return ReportSection(TITLE, text, points=points)


def _expectations(summary: Summary) -> list[str]:
    return [
        f"An expectation fails: {clean(one['that'])} {clean(one['where'])}; "
        f"measured: {clean(measured_text(one))}."
        for one in summary.get("expectations", [])
        if not one["holds"]
    ]


def _faults(summary: Summary) -> list[str]:
    """The faults that acted, and those that were never observed."""
    never = set(summary.get("vacuous", []))
    acted = [clean(each["fault"]) for each in summary.get("faults", [])
             if each["applied"] and each["fault"] not in never]  # fmt: skip
    points = [f"Faults of the scenario acted: {_named(acted)}."] if acted else []
    if never:
        points.append(f"Never observed, so that the run proves nothing: {_named(sorted(never))}.")
    return points


def _deaths(account: Account) -> list[str]:
    died = [clean(event["process"]) for event in account.events("died")]
    if not died:
        return []
    return [f"Processes died, {len(died):,} in all: {_named(list(dict.fromkeys(died)))}."]


def _lost(lost: Sequence[Loss], called: int) -> list[str]:
    """The calls that led to no folded update, and the most frequent reasons."""
    if not lost:
        return []
    count = sum(times for _, _, times in lost)
    why = [f"{times:,} {what}{f', {reason}' if reason else ''}" for what, reason, times in lost]
    more = "; and others" if len(lost) > _MOST_NAMES else ""
    text = f"{percent_text(count / called)} of the {called:,} calls led to no update that counted"
    return [f"{text}: {'; '.join(why[:_MOST_NAMES])}{more}."]


def _empty(summary: Summary) -> list[str]:
    empty, rounds = summary["empty_rounds"], summary["rounds"]
    return [f"{empty:,} of {rounds:,} rounds made no version."] if empty else []


def _warnings(account: Account) -> list[str]:
    warnings = account.warnings.drop_duplicates(["by", "warning"])
    if warnings.empty:
        return []
    by, first = warnings["by"].iloc[0], clean(warnings["warning"].iloc[0])
    more = f", and {len(warnings) - 1:,} more" if len(warnings) > 1 else ""
    who = BY_MUSTER if by == BY_MUSTER else "The aggregator"
    return [f"{who} warned: {first}{more}."]


def _named(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES:,} more" if len(names) > _MOST_NAMES else ""
    return f"{', '.join(names[:_MOST_NAMES])}{more}"
