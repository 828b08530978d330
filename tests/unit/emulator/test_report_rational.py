"""The report of runs with rational devices: who stays, who leaves, and their utilities."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.unit.emulator.charts import charts_of

from muster.emulator.records.account import Account
from muster.emulator.records.summary import outline
from muster.emulator.report import utility_curves, willingness
from muster.emulator.report.balance_section import represented
from muster.emulator.report.figures import FIGURES

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.emulator.conftest import RunFolder

SCENARIO = """
name = "rational"
[[groups]]
name = "silo"
count = 3
[groups.participation]
kind = "rational"
[groups.participation.utility]
largest_weight = 0.5
"""


def value(run: RunFolder, client: str, received: float, own: float | None, **row: Any) -> None:
    """Add the valuation of a client in the newest round."""
    gains = None if own is None else int(received > own)
    columns = {
        "round": run.rounds,
        "client": client,
        "received_accuracy": received,
        "own_accuracy": own,
        "gains": gains,
        "forced": int(own is None),
    }
    run.add("valuations", **columns | row)


def leaving(run: RunFolder, curves: bool = False) -> Path:
    """Three rounds: a stays, b is away in round 2 alone, and c leaves in round 2 for good."""
    run.scenario(SCENARIO)
    run.clients("a", "b", group="silo")
    run.clients("c", group="office")
    curve = {"a": 0.5, "b": 0.4, "c": 0.6, "threshold": 0.62} if curves else {}
    run.round({"a": "folded", "b": "folded", "c": "folded"})
    run.estimate(alpha={"a": 0.2, "b": 0.3, "c": 0.5})
    for client in "abc":
        value(run, client, 0.1, None, **curve)
    run.round({"a": "folded"}, declined={"b": "no gain", "c": "no gain"})
    value(run, "a", 0.6, 0.5, fitted_utility=0.63, r_squared=0.8, **curve)
    value(run, "b", 0.5, 0.6, **curve)
    value(run, "c", 0.4, 0.7, **curve)
    run.round({"a": "folded", "b": "folded"}, declined={"c": "no gain"})
    value(run, "a", 0.8, 0.5, fitted_utility=0.75, r_squared=0.6, **curve)
    value(run, "b", 0.7, 0.6, **curve)
    value(run, "c", 0.45, 0.7, **curve)
    run.evaluate(1.0, 0.7)
    return run.commit()


def test_the_table_says_who_left_and_since_when(run: RunFolder) -> None:
    with Account(leaving(run)) as account:
        found = willingness.section(account, outline(account))
    assert found is not None
    assert dict(found.facts) == {
        "calls accepted": "66.7 %",  # 6 of 9
        "away at the end": "1 of 3",
        "received model better than their own": "50.0 %",  # 3 of the 6 with a model of their own
    }
    assert found.table is not None
    assert list(map(list, found.table.rows)) == [
        ["c", "1 of 3", "round 2", "45.0 %", "70.0 %"],
        ["b", "2 of 3", "", "70.0 %", "60.0 %"],
        ["a", "3 of 3", "", "80.0 %", "50.0 %"],
    ]


def test_the_section_on_whom_the_model_represents_names_those_left_behind(run: RunFolder) -> None:
    with Account(leaving(run)) as account:
        found = represented(account, outline(account))
    assert found is not None
    assert found.title == "Whom does this model represent?"
    away, why = found.points
    # Every device has 100 examples.
    assert "1 of 3 rational devices were away, with 33.3 % of their training examples" in away
    assert "(1 of office)" in away
    assert "better by at least 25.0 points" in why  # 0.7 - 0.45


def test_devices_that_leave_a_better_model_leave_because_of_their_rule(run: RunFolder) -> None:
    run.clients("a", "b")
    run.round({"a": "folded"}, declined={"b": "no gain"})
    value(run, "a", 0.5, 0.6)
    value(run, "b", 0.9, 0.6)
    with Account(run.commit()) as account:
        _, why = willingness.left_behind(account)
    assert "what keeps them away is the rule" in why


def test_a_run_whose_devices_all_came_says_so(run: RunFolder) -> None:
    run.clients("a")
    run.round({"a": "folded"})
    value(run, "a", 0.5, None)
    with Account(run.commit()) as account:
        assert willingness.left_behind(account) == ["At the end, no rational device was away."]


def test_the_figure_counts_devices_and_shows_the_accuracies_that_they_compared(
    run: RunFolder,
) -> None:
    top, bottom = charts_of("willingness", leaving(run))
    assert top.title == "3 devices accepted in round 1, 2 in the last one"
    bars = {layer.label: layer.y for layer in top.layers if layer.kind == "bars"}
    assert bars == {"judged": [3, 3, 3], "accepted": [3, 1, 2]}
    assert top.layers[2].kind == "levels"
    assert top.layers[2].y[1:] == [1, 2]
    assert "70.0 % received, 60.0 % own" in bottom.title


def test_curves_have_thresholds_and_the_accuracy_measured_in_the_round_after(
    run: RunFolder,
) -> None:
    with Account(leaving(run, curves=True)) as account:
        found = utility_curves.section(account, outline(account))
        charts = FIGURES["utilities"](account)
    assert found is not None
    # |0.63 - 0.6| and |0.75 - 0.8|
    assert dict(found.facts)["median error at α"] == "4.0 points"
    assert dict(found.facts)["mean R² of the fits"] == "0.70"
    titles = [chart.title for chart in charts]
    assert titles == ["c: accepted 1 of 3", "b: accepted 2 of 3", "a: accepted 3 of 3, R² 0.70"]
    layers = charts[2].layers
    curves = [layer for layer in layers if layer.kind == "line"]
    for curve in curves:
        x, y = np.array(curve.x, float), np.array(curve.y, float)
        assert (x[0], x[-1]) == (0, 0.5)
        np.testing.assert_allclose(y, -0.5 * x**2 + 0.4 * x + 0.6)
    assert len(curves) == 3
    dots = [(layer.x, layer.y) for layer in layers if layer.kind == "dots"]
    # a was told 0.2 with the calls of rounds 2 and 3, where it measured 60 % and 80 %.
    assert dots == [([0.2], [0.6]), ([0.2], [0.8])]
    assert {layer.y[0] for layer in layers if layer.kind == "across"} == {0.62}


def test_the_chosen_devices_are_spread_from_seldom_to_often(run: RunFolder) -> None:
    names = [f"d{number}" for number in range(7)]
    run.clients(*names)
    for number in range(7):
        run.round(
            dict.fromkeys(names[number:], "folded"),
            declined=dict.fromkeys(names[:number], "no gain"),
        )
        for name in names:
            value(run, name, 0.5, 0.5, a=1.0, b=0.0, c=0.5, threshold=0.5)
    with Account(run.commit()) as account:
        found = willingness.judgements(account)
    # d0 accepted once and d6 seven times.
    assert utility_curves.chosen(found) == ["d0", "d2", "d4", "d6"]


@pytest.mark.parametrize("name", ["willingness", "utilities"])
def test_a_run_without_rational_devices_has_no_such_section(run: RunFolder, name: str) -> None:
    run.clients("a")
    run.round({"a": "folded"})
    with Account(run.commit()) as account:
        summary = outline(account)
        assert willingness.section(account, summary) is None
        assert utility_curves.section(account, summary) is None
        assert represented(account, summary) is None
        assert FIGURES[name](account) == []
