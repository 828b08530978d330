"""The first lines of the report."""

import pytest

from muster.emulator.report.sections import why_ended


@pytest.mark.parametrize(
    ("status", "detail", "said"),
    [
        ("completed", "", []),
        ("stopped", "asked by a signal", ["It was stopped: asked by a signal."]),
        ("diverged", "the sum is too large.", ["It diverged: the sum is too large."]),
    ],
)
def test_how_a_run_ended_is_a_sentence(status: str, detail: str, said: list[str]) -> None:
    assert why_ended({"status": status, "detail": detail}) == said
