"""Metrics that devices report."""

import math

import pytest

from muster.common.device_metrics import metrics_from_bytes, metrics_to_bytes
from muster.common.errors import ConfigError


def test_metrics_arrive_as_they_were_measured() -> None:
    measured = {"f1": 0.1, "größte": -3.0, "count": 7.0}
    assert metrics_from_bytes(metrics_to_bytes(measured)) == measured


def test_what_is_not_finite_is_not_reported() -> None:
    assert metrics_to_bytes({"a": math.nan, "b": math.inf, "c": 1.0}) == b'{"c": 1.0}'
    assert metrics_to_bytes({"a": math.nan}) == b""


@pytest.mark.parametrize(
    "report",
    [b"", b"{", b"[1]", b"3", b"\xff", b"[" * 30_000, b'{"a": NaN}', b'{"a": 1e999}',
     b'{"a": "x"}', b'{"a": null}', b'{"a": {"b": 1}}'],
)  # fmt: skip
def test_nothing_else_is_taken(report: bytes) -> None:
    assert metrics_from_bytes(report) == {}


def test_metrics_that_are_too_long_are_refused() -> None:
    many = {f"metric {number}": 0.5 for number in range(3000)}
    with pytest.raises(ConfigError, match=r"at most 32,768 bytes of them, found .* 3,000 metrics"):
        metrics_to_bytes(many)
