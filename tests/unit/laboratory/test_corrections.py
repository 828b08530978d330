"""The table of the corrections: what becomes of their gain on fedavg under an adversary."""

import pytest

from muster.laboratory.worst_case.corrections import table, verdict


def row(rule: str, without: float, worst: float, seed: int = 1) -> dict[str, object]:
    found = {"random_max": 0.5, "random_mean": 0.25, "runs": 25, "words": "without group seldom"}
    measured = {"without": without, "worst": worst, "harm": worst - without}
    return {"rule": rule, "seed": seed, **found, **measured}


FEDAVG = row("fedavg", 30.0, 36.0)


@pytest.mark.parametrize(
    ("without", "worst", "said"),
    [
        (24.0, 33.0, "survives"),
        (24.0, 33.1, "survives in part"),
        (24.0, 36.1, "worse than fedavg"),
        (30.0, 35.0, "had no gain"),
        (31.0, 36.5, "had no gain, and ends worse than fedavg"),
    ],
)
def test_a_correction_survives_if_half_of_its_gain_is_left(
    without: float, worst: float, said: str
) -> None:
    assert verdict(row("fedipw", without, worst), FEDAVG) == said


def test_the_table_has_means_over_the_seeds_and_counts_what_became_of_the_gain() -> None:
    searches = [
        *(row("fedavg", 30.0, 36.0, seed) for seed in (1, 2)),
        row("fedipw", 24.0, 32.0),
        row("fedipw", 24.0, 37.0, 2),
        {"rule": "feduca", "seed": 1, "refused": "it needs valuations"},
    ]
    lines = table({"searches": searches})
    assert lines[3].startswith(
        "| `fedipw` (fedipw) | 24.00 ± 0.00 | 0.25 ± 0.00, 0.50 | 10.50 ± 31.77 | 42 | 50 | "
        "4.50 ± 31.77 | 6.00 ± 0.00 | 1.50 ± 31.77 |"
    )
    assert "it needs valuations" in lines[4]
    assert "- `fedipw`: survives (1 of 2), worse than fedavg (1 of 2)" in lines
