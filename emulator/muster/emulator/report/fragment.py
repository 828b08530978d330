"""The most important sections of a report as a piece of HTML, for notebooks. It needs no script, no
file and no network."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from muster.emulator.planning.result import Plan
from muster.emulator.records.account import Account
from muster.emulator.records.summary import clean
from muster.emulator.report.faults import shaded_rounds
from muster.emulator.report.figures import FIGURES
from muster.emulator.report.page import rendered, summary_of, went_wrong
from muster.emulator.report.plan_tables import describe
from muster.emulator.report.section import ReportSection
from muster.emulator.report.sections import groups, headline, learning

Pictures = Mapping[str, Mapping[str, str]]
"""What `figure_files.picture` says of each figure."""


def run_fragment(account: Account) -> str:
    """How a run ended, how it learned, how it serves groups, and what went wrong."""
    from muster.emulator.report.figure_files import draw, picture

    summary, shaded = summary_of(account), shaded_rounds(account)
    made = headline(account, summary), learning(account, summary), groups(account, summary)
    sections = [section for section in made if section]
    charts = {s.figure: FIGURES[s.figure](account) for s in sections if s.figure}
    pictures = {name: picture(draw(some, shaded)) for name, some in charts.items() if some}
    last = went_wrong(account, summary)
    return fragment([*sections, last], pictures, clean(summary["status"]))


def plan_fragment(plan: Plan) -> str:
    """What a plan says of each group, and its figure."""
    from muster.emulator.report.figure_files import picture
    from muster.emulator.report.plan_figure import draw

    first, *lines = map(clean, describe(plan).splitlines())
    listing = "\n".join(lines).strip("\n")
    section = ReportSection(f"Plan of {first}", figure="plan", listing=listing)
    return fragment([section], {"plan": picture(draw(plan))})


def fragment(sections: Sequence[ReportSection], pictures: Pictures, status: str = "") -> str:
    """Sections as a piece of HTML. A section whose figure has no picture is shown without it.

    Args:
        status: that of a run or comparison; it colours the fact called "status".
    """
    shown = [s if s.figure in pictures else replace(s, figure="") for s in sections]
    return rendered("fragment.html", status=status, sections=shown, figures=pictures)
