"""What the server side of a Flower app measured, in the account, the report, and exports."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from muster.emulator.export.metrics import metric_points
from muster.emulator.records.account import Account
from muster.emulator.records.summary import outline
from muster.emulator.report import app_metrics
from muster.emulator.report.weight_sections import estimates, weights

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.unit.emulator.conftest import RunFolder


@pytest.fixture
def account(run: RunFolder) -> Iterator[Account]:
    """Three rounds of an app that measured the initial model and all versions but the second."""
    run.clients("a")
    run.estimate(app_measured={"server.loss": 4.0})
    run.round({"a": "folded"})
    run.estimate(app_measured={"train.loss": 3.0, "server.loss": 2.0})
    run.round({"a": "folded"})
    run.round({"a": "folded"})
    run.estimate(app_measured={"train.loss": "nan", "server.loss": 2.5})
    with Account(run.commit()) as account:
        yield account


def test_the_account_has_a_row_for_each_metric_and_round(account: Account) -> None:
    rows = [
        (0, "server.loss", 4.0),
        (1, "train.loss", 3.0),
        (1, "server.loss", 2.0),
        (3, "train.loss", np.nan),
        (3, "server.loss", 2.5),
    ]
    found = [tuple(row) for row in account.app_metrics.itertuples(index=False)]
    np.testing.assert_equal(found, rows)


def test_the_report_shows_the_newest_and_the_range_of_each_metric(account: Account) -> None:
    found = app_metrics.section(account, outline(account))
    assert found is not None
    assert found.table is not None
    assert list(map(list, found.table.rows)) == [
        ["server.loss", "3", "3", "2.5", "2", "4"],
        ["train.loss", "2", "3", "–", "3", "3"],
    ]


def test_no_section_on_weights_repeats_them(account: Account) -> None:
    assert weights(account, outline(account)) is None
    assert estimates(account, outline(account)) is None


def test_a_run_without_an_app_has_no_section_on_it(run: RunFolder) -> None:
    run.clients("a")
    run.round({"a": "folded"})
    with Account(run.commit()) as account:
        assert account.app_metrics.empty
        assert app_metrics.section(account, outline(account)) is None


def test_exports_have_the_metrics_with_the_time_of_their_round(account: Account) -> None:
    closed = dict(zip(account.rounds["round"], account.rounds["closed_at"], strict=True))
    points = [tuple(each) for each in metric_points(account) if each.name.startswith("app/")]
    assert points == [
        ("app/server.loss", 0, 4.0, closed[1]),
        ("app/server.loss", 1, 2.0, closed[1]),
        ("app/train.loss", 1, 3.0, closed[1]),
        ("app/server.loss", 3, 2.5, closed[3]),
    ]
