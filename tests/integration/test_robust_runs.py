"""Runs in which a fifth of the devices send wrong updates, with and without a rule that resists
them."""

import json
from pathlib import Path

import pytest

from muster.emulator.records.account import Account
from muster.emulator.records.summary import read_summary
from muster.emulator.scenario.reading import read_scenario
from muster.simulation.whole_run import simulate_run

ATTACK = Path(__file__).parents[2] / "examples/attack/attack.toml"
HONEST = "faults=[]"


def rule(kind: str, *settings: str) -> str:
    fields = ", ".join([f"kind='{kind}'", *settings])
    return f"server.aggregator={{{fields}}}"


def losses(folder: Path, *settings: str) -> tuple[float, float]:
    """The losses of the first and of the last version of the example."""
    assert simulate_run(read_scenario(ATTACK, settings), folder) == "completed"
    with Account(folder) as account:
        found = account.evaluations["loss"]
    return float(found.iloc[0]), float(found.iloc[-1])


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> float:
    """The loss to which fedavg comes if all devices are honest."""
    start, end = losses(tmp_path_factory.mktemp("honest"), HONEST, rule("fedavg"))
    assert end < 0.7 * start
    return end


def test_the_mean_becomes_worse_than_the_start(tmp_path: Path) -> None:
    start, end = losses(tmp_path, rule("fedavg"))
    assert end > 2 * start


@pytest.mark.parametrize("kind", ["median", "trimmed-mean", "krum", "multi-krum", "bulyan"])
def test_a_robust_rule_ends_near_the_honest_result(
    kind: str, honest: float, tmp_path: Path
) -> None:
    settings = [] if kind == "median" else ["byzantine=3"]
    start, end = losses(tmp_path, rule(kind, *settings))
    assert abs(end - honest) < 0.15 * (start - honest)


@pytest.mark.parametrize("kind", ["fedavg", "median"])
def test_huge_updates_cost_only_their_devices_anything(kind: str, tmp_path: Path) -> None:
    """A mean refuses them, because its exact sum could not hold them."""
    huge = "faults.0.factor=1e12", "server.rounds=2"
    start, end = losses(tmp_path / "run", *huge, rule(kind))
    assert end < start


def test_gradients_are_combined_and_the_server_takes_the_step(tmp_path: Path) -> None:
    # With f = 0 the trimmed mean is the plain mean, as with fedbuff.
    settings = HONEST, "training.gradient=true", "server.rounds=3"
    start, mean = losses(tmp_path / "mean", *settings, rule("fedbuff"))
    _, trimmed = losses(tmp_path / "trimmed", *settings, rule("trimmed-mean", "byzantine=0"))
    assert trimmed == pytest.approx(mean, rel=1e-6)
    assert trimmed < start


@pytest.mark.parametrize(("kind", "selected"), [("krum", 1), ("multi-krum", 10), ("bulyan", 9)])
def test_the_ledger_says_whose_updates_were_selected(
    kind: str, selected: int, tmp_path: Path
) -> None:
    losses(tmp_path, rule(kind, "byzantine=3"), "server.rounds=3")
    with Account(tmp_path) as account:
        rows = account.contributions
        rounds = account.rounds
    assert set(rows["outcome"]) == {"folded"}
    assert set(rows["weight"]) == {0.0, 1.0}
    assert (rows.groupby("round")["weight"].sum() == selected).all()
    assert (rounds["normaliser"] == selected).all()
    hostile = rows["client"].str.startswith("hostile-")
    assert hostile.sum() == 3 * len(rounds)
    assert rows["weight"][hostile].sum() == 0


@pytest.mark.parametrize("kind", ["trimmed-mean", "krum", "multi-krum", "bulyan"])
def test_rounds_with_too_few_updates_leave_the_model_and_are_announced(
    kind: str, tmp_path: Path
) -> None:
    # The population is large enough, but the hostile devices never come.
    f, needed = {"trimmed-mean": (6, 13), "bulyan": (3, 15)}.get(kind, (5, 13))
    away = "groups[1].availability={kind='bernoulli', probability=1e-9}"
    losses(tmp_path, rule(kind, f"byzantine={f}"), away, "server.rounds=3")
    with Account(tmp_path) as account:
        assert set(account.rounds["outcome"]) == {"empty"}
    events = [json.loads(line) for line in (tmp_path / "journal.jsonl").read_text().splitlines()]
    [warned] = [event for event in events if event["event"] == "warned"]
    assert f"needs at least {needed} to tolerate {f} wrong ones" in json.dumps(warned)
    assert read_summary(tmp_path)["updates_folded"] == 0


@pytest.mark.parametrize(("kind", "f"), [("trimmed-mean", 6), ("krum", 5)])
def test_updates_of_an_empty_round_count_in_a_later_one(kind: str, f: int, tmp_path: Path) -> None:
    # The rule needs 13 updates. Twelve finish in the first round, and three in the second.
    settings = (
        "server.mode='opportunistic'", "server.deadline_s=20", "clock.round_s=30",
        "groups[0].device={examples_per_s=1000}", "groups[1].device={examples_per_s=2}",
        "server.rounds=3", rule(kind, f"byzantine={f}"), HONEST,
    )  # fmt: skip
    losses(tmp_path, *settings)
    with Account(tmp_path) as account:
        rounds = account.rounds
        folded = account.contributions.query("outcome == 'folded'")
    assert [*rounds["outcome"][:2]] == ["empty", "aggregated"]
    assert [*rounds["folded"][:2]] == [0, 15]
    second = folded[folded["round"] == 2]
    assert set(second["call_round"]) == {1}
    assert second["weight"].sum() == (1 if kind == "krum" else 15)


OWN_RULE = """
import numpy as np
from muster.server.aggregators import Combining

class Largest(Combining):
    def weight(self, contribution, state):
        return 1.0

    def combine(self, updates, counted):
        return updates.max(axis=0).astype(np.float64)
"""


def test_a_rule_of_ones_own_combines_updates_whose_weights_are_known_on_arrival(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_rule_of_largest.py").write_text(OWN_RULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    start, end = losses(tmp_path / "run", HONEST, rule("own_rule_of_largest:Largest"))
    assert start != end
