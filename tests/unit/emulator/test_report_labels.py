"""Labels of figures: long names lose whole words, stay inside the figure, and are given in full."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from matplotlib.patches import Patch
from matplotlib.text import Text

from muster.emulator.records.account import Account
from muster.emulator.report import style, write_report
from muster.emulator.report.figure_files import draw
from muster.emulator.report.figures import FIGURES
from muster.emulator.report.names import drawable, noting_names

if TYPE_CHECKING:
    from tests.unit.emulator.conftest import RunFolder

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).parents[3]
REPORT = REPOSITORY / "emulator/muster/emulator/report"

LONG = ("phones-of-the-northern-country-side", "phones-of-the-southern-country-side")


@pytest.mark.parametrize(
    ("name", "longest", "label"),
    [
        ("phones-0001", 14, "phones-0001"),
        ("a-very-long-group-name", 14, "a-…group-name"),
        ("a very long group name", 18, "a …long group name"),
        ("devices-in-the-country-0001", 12, "…0001"),
        ("devices-in-the-country-0001", 13, "devices-…0001"),
        ("os=Android-15", 9, "os=…15"),
        ("Donaudampfschiff", 8, "Donauda…"),
        ("short and Donaudampfschiff", 8, "short a…"),
        ("鬼\x1b$x$", 14, "??$x$"),
    ],
)
def test_a_long_name_loses_whole_words(name: str, longest: int, label: str) -> None:
    assert drawable(name, longest) == label
    assert len(label) <= longest


def test_shortened_names_are_noted_with_the_full_ones() -> None:
    with noting_names() as full:
        drawable("phones", 14)
        drawable("a-very-long-group-name", 14)
    assert full == {"a-…group-name": "a-very-long-group-name"}
    drawable("another-very-long-group-name", 14)
    assert len(full) == 1


def test_two_names_never_get_the_same_label() -> None:
    with noting_names() as full:
        labels = [drawable(name, 24) for name in (*LONG, *LONG)]
    assert labels == ["phones-…country-side", "phones-…country-side (2)"] * 2
    assert full == dict(zip(labels, LONG, strict=False))


def named(run: RunFolder) -> Path:
    """A run with two groups, and a covariate, whose names are long."""
    run.scenario('name = "names"\n[clock]\nkind = "rounds"\nround_s = 3600.0\n')
    for number, group in enumerate(LONG):
        z = f'{{"the wealth of the household in {number} years": {number}.0}}'
        run.clients(*(f"{group}-{place:04}" for place in range(3)), group=group, z=z)
    first, second = ([f"{group}-{place:04}" for place in range(3)] for group in LONG)
    for level in (0.4, 0.6):
        run.round({first[0]: "folded", second[0]: "late", second[1]: "folded"},
                  declined={first[1]: "not charging", second[2]: "battery"},
                  sent={first[0]: {"weight": level, "train_s": level}},
                  batteries=dict.fromkeys([*first, *second], level))  # fmt: skip
        run.round(dict.fromkeys(first, "folded"), declined={second[0]: "battery"})
        run.estimate(coverage={"share": level, "updates": 2 * level, "largest_psi": 1 / level})
        run.evaluate(level, level)
        run.measure(dict.fromkeys(LONG, (5, level, level)),
                    {first[0]: (5, 1.0, level), second[0]: (5, 1.0, 0.1)})  # fmt: skip
        for client in (*first, *second):
            for way in ("down", "up"):
                run.transfer(client, way, 4 * run.rounds, level, 1 + level)
    run.estimate(shares=dict.fromkeys(first, 0.25) | dict.fromkeys(second, 0.5))
    run.plan([(number, group, 3, 3, number % 3) for number in range(1, 5) for group in LONG])
    run.traffic(LONG[0], (1000, 1000, 2000, 2000), (500, 100, 2000, 2000))
    run.traffic(LONG[1], (1000, 1000, None, None), (500, 100, None, None))
    return run.commit()


@pytest.mark.parametrize("name", FIGURES)
def test_no_text_leaves_the_figure_or_is_drawn_over_another_title(
    run: RunFolder, name: str
) -> None:
    with Account(named(run)) as account:
        charts = FIGURES[name](account)
    if not charts:
        assert name in ("pace", "staleness", "willingness", "utilities")  # not in such a run
        return
    figure = draw(charts)
    figure.draw_without_rendering()  # the layout decides where texts are
    # Numbers are left out, because axes also have ticks beyond their limits, which are not drawn.
    texts = [one for one in figure.findobj(Text) if re.search("[a-zĉ]{2}", one.get_text())]
    assert texts
    page = figure.bbox
    for text in texts:
        box = text.get_window_extent()
        assert box.x0 >= page.x0 - 1, text.get_text()
        assert box.x1 <= page.x1 + 1, text.get_text()
    titles = [
        text.get_window_extent()
        for axes in figure.axes
        for text in axes.findobj(Text)
        if text.get_text() == axes.get_title(loc="left") != ""
    ]
    for place, title in enumerate(titles):
        for other in titles[place + 1 :]:
            assert not (title.width and other.width and title.overlaps(other))


def test_a_legend_of_long_names_takes_several_rows() -> None:
    figure = style.new_figure(3.0)
    figure.subplots()
    style.key(figure, [Patch(label=f"phones-of-the-country-{place}") for place in range(8)])
    figure.draw_without_rendering()
    box = figure.legends[0].get_window_extent()
    assert box.width <= figure.bbox.width
    assert box.height > 60  # several rows


def test_the_page_has_the_full_names(run: RunFolder) -> None:
    page = write_report(named(run)).read_text(encoding="utf-8")
    [data] = re.findall(r'type="application/json">(.*?)</script>', page)
    for group in LONG:
        assert any(chart["title"].startswith(f"{group}:")
                   for chart in json.loads(data)["figures"]["reasons"])  # fmt: skip


def test_pages_quote_titles_that_the_report_has() -> None:
    code = "".join(path.read_text(encoding="utf-8") for path in REPORT.glob("*.py"))
    titles = set(re.findall(r'(?:ReportSection\(\s*|_TITLE = )"([^"]+)"', code))
    quoted = set()
    for path in (REPOSITORY / "docs").glob("*.md"):
        text = path.read_text(encoding="utf-8")
        quoted |= set(re.findall(r'[Ss]ection "([^"]+)"', text))
        for table in re.findall(r"\| question \| section .*\n(?:\|.*\n)+", text):
            quoted |= set(re.findall(r"\| ([^|]+) \| `\w+\.png` \|", table))
    assert {"Weights", "Plan and run"} <= quoted
    assert quoted <= titles
