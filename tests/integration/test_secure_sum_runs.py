"""Whole runs in virtual time: with secure sums, a run makes the model of a run without them, bit
for bit, whatever dies."""

from typing import Any

import pytest

from muster.common.config import validate
from muster.common.errors import ConfigError, RunFailed
from muster.emulator.planning import plan
from muster.emulator.report.plan_tables import describe
from muster.emulator.run_audit import audit
from muster.emulator.scenario.scenario import Scenario
from muster.server.aggregation.accountant import Accountant
from muster.server.settings.privacy import Privacy
from muster.testing import KillAt, SimulatedFleet, assert_never_counted_twice, assert_same_model

SHARES = {"drop_out": 0.2, "collusion": 0.0}
SECURE = {"rounds": 3, "minimum": 3, "secure": SHARES}
PLAIN = {"rounds": 3, "minimum": 3}


def settings(server: dict[str, Any], **sections: Any) -> dict[str, Any]:
    return {
        "name": "secure",
        "seed": 7,
        "task": {"name": "linear", "dimension": 5, "heterogeneity": 1.0, "examples_per_client": 16},
        "training": {"learning_rate": 0.05, "local_steps": 2, "batch_size": 8},
        "server": server,
        "groups": [
            {"name": "small", "count": 3, "link": {"compression": {"kind": "top-k", "ratio": 0.4}}},
            {"name": "dev", "count": 3},
        ],
        **sections,
    }


@pytest.mark.parametrize("rule", ["fedavg", "fedadam"])
def test_secure_sums_make_the_model_of_updates(rule: str, fleet: SimulatedFleet) -> None:
    of_updates = fleet.run(settings({**PLAIN, "aggregator": rule}))
    of_sums = fleet.run(settings({**SECURE, "aggregator": rule}))
    assert_same_model(of_sums, of_updates)
    assert set(of_sums.ledger.contributions["outcome"]) == {"folded"}
    assert set(of_sums.ledger.contributions["bytes_up"]) == {0}


GRIDS = [
    {"range": 0.5},
    {"range": 0.02, "bits": 8, "rounding": "stochastic"},
    {"range": 0.02, "bits": 6},
    {"range": 0.5, "bits": 40},
    {},
]


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_plain_sums_make_the_same_model(grid: dict[str, Any], fleet: SimulatedFleet) -> None:
    """Also if updates are clipped, and rounded coarsely."""
    models = set()
    for plain in (False, True):
        secure = {**SHARES, **grid, "plain": plain}
        done = fleet.run(settings({**SECURE, "secure": secure}))
        assert list(done.ledger.rounds["outcome"]) == ["aggregated"] * 3
        models.add(done.summary["model_sha256"])
    assert len(models) == 1


def test_updates_that_are_clipped_make_another_model(fleet: SimulatedFleet) -> None:
    models, said = set(), []
    for range in (0.5, 0.02):
        secure = {**SHARES, "range": range}
        done = fleet.run(settings({**SECURE, "secure": secure}))
        models.add(done.summary["model_sha256"])
        said.append([*done.ledger.warnings["warning"]])
    assert len(models) == 2
    assert said == [[], ["6 of 6 updates have entries beyond range = 0.02, which are clipped"]]


def test_a_weight_beyond_the_grid_ends_the_run(fleet: SimulatedFleet) -> None:
    secure = {**SHARES, "range": 0.5, "largest_weight": 15.0}
    expected = "the weight 16; expected at most 15. Set server.secure.largest_weight"
    with pytest.raises(RunFailed, match=expected):
        fleet.run(settings({**SECURE, "secure": secure}))


def test_a_plan_says_how_secrets_are_shared() -> None:
    found = describe(plan(validate(Scenario, settings(SECURE), "secure")))
    *_, head, row = found.partition("Secure sums")[2].partition("\n\n")[0].splitlines()
    assert head.split("  ")[-1] == "too few stay"
    assert row.split() == ["6", "5", "4", "672", "0.099"]
    assert "Secure sums" not in describe(plan(validate(Scenario, settings(PLAIN), "plain")))


def of_parts(schedule: str, secure: dict[str, Any] | None, **sections: Any) -> dict[str, Any]:
    """Six devices that train one of two halves of the model, and three that train all of it."""
    half = {"kind": "random", "schedule": schedule}
    table = settings({**PLAIN, "aggregator": "fedplt"}, **sections)
    table["task"]["dimension"] = 6
    table["groups"] = [
        {"name": "half", "count": 6, "device": {"capacity": 0.5}, "mask": half},
        {"name": "whole", "count": 3},
    ]
    if secure is not None:
        table["server"]["secure"] = {**SHARES, **secure}
    return table


@pytest.mark.parametrize("schedule", ["static", "rotating"])
def test_parts_of_the_model_have_secure_sums_of_their_own(
    schedule: str, fleet: SimulatedFleet
) -> None:
    of_updates = fleet.run(of_parts(schedule, None))
    of_sums = fleet.run(of_parts(schedule, {"keep_sums": True}))
    assert_same_model(of_sums, of_updates)
    assert set(of_sums.ledger.contributions["outcome"]) == {"folded"}
    lengths = {path.stat().st_size for path in (of_sums.folder / "sums").iterdir()}
    assert lengths == {16 * (3 + 3 + 6)}
    assert audit(of_sums.folder).agrees
    grid = {"range": 0.5, "rounding": "stochastic", "bits": 12}
    plain = fleet.run(of_parts(schedule, {**grid, "plain": True}))
    kill = KillAt("half-0001", "secure_step", 2, "opening")
    assert_same_model(fleet.run(of_parts(schedule, grid), kill), plain)


def test_a_device_that_downloads_a_part_may_train_it_again_for_a_sum(fleet: SimulatedFleet) -> None:
    models = set()
    kills = (
        KillAt("half-0001", "secure_step", 2, "shares"),
        KillAt("server", "secure_step", 3, "update"),
    )
    for secure, of_run in ((None, ()), ({}, ()), ({}, kills)):
        table = of_parts("rotating", secure)
        table["task"] |= {"model": "mlp", "hidden": [6]}
        table["groups"][0]["mask"]["kind"] = "width"
        models.add(fleet.run(table, *of_run).summary["model_sha256"])
    assert len(models) == 1


def test_a_sum_of_too_few_for_their_part_is_not_opened(fleet: SimulatedFleet) -> None:
    away = {"do": "offline", "target": {"names": ["half-0002"]}, "when": {"round": 2}}
    done = fleet.run(of_parts("static", {}, faults=[{**away, "for_rounds": 1}]))
    rows = done.ledger.contributions
    dropped = rows[rows["outcome"] == "dropped"]
    assert [*zip(dropped["round"], dropped["client"], dropped["reason"], strict=True)] == [
        (2, "half-0000", "sum missing"),
        (2, "half-0004", "sum missing"),
    ]
    assert [*done.ledger.rounds["folded"]] == [9, 6, 9]
    (failed,) = done.ledger.events("secure_sum_failed")
    assert (failed["round"], failed["answered"], failed["needed"]) == (2, 2, 3)


def test_parts_that_too_few_devices_train_are_refused(fleet: SimulatedFleet) -> None:
    table = of_parts("static", {})
    table["groups"][0]["device"]["capacity"] = 0.4
    expected = "4 parts of the model are trained.*of half-0000 is trained by 2 of 9 devices"
    with pytest.raises(ConfigError, match=expected):
        fleet.run(table)
    with pytest.raises(ConfigError, match=expected):
        plan(validate(Scenario, table, "parts"))


def test_a_plan_shows_the_smallest_and_the_largest_sum_of_parts() -> None:
    table = of_parts("static", {})
    table["groups"][1]["count"] = 5
    found = describe(plan(validate(Scenario, table, "parts")))
    rows = found.partition("Secure sums")[2].partition("\n\n")[0].splitlines()[-2:]
    assert [row.split()[:2] for row in rows] == [["3", "2"], ["5", "4"]]


def noisy(noise: float = 2.0, **server: Any) -> dict[str, Any]:
    privacy = {"clip": 0.05, "noise": noise, "where": "sum"}
    secure = {**SHARES, "range": 0.5, **server.pop("secure", {})}
    return settings({**SECURE, "minimum": 4, "secure": secure, "privacy": privacy, **server})


@pytest.mark.parametrize("bits", [None, 9])
def test_noise_in_sums_is_that_of_a_plain_run_whatever_dies(
    bits: int | None, fleet: SimulatedFleet
) -> None:
    grid = {} if bits is None else {"bits": bits, "rounding": "stochastic"}
    plain = fleet.run(noisy(secure={**grid, "plain": True}))
    kills = (
        KillAt("dev-0001", "secure_step", 2, "opening"),
        KillAt("server", "secure_step", 3, "update"),
    )
    secure = fleet.run(noisy(secure=grid), *kills)
    assert_same_model(secure, plain)
    assert_never_counted_twice(secure)
    silent = fleet.run(noisy(0.0, secure=grid))
    assert silent.summary["model_sha256"] != secure.summary["model_sha256"]
    spent = [*secure.ledger.rounds["epsilon"]]
    assert spent == [*plain.ledger.rounds["epsilon"]]
    account = Accountant(Privacy(clip=0.05, noise=2.0, where="sum"), None)
    assert spent == [account.epsilon(round) for round in (1, 2, 3)]
    assert secure.summary["privacy"]["where"] == "sum"
    assert set(silent.ledger.contributions["weight"]) != {1.0}  # some are clipped
    assert set(silent.ledger.rounds["normaliser"]) == {6.0}


def test_a_plan_says_how_much_more_noise_there_is_than_needed() -> None:
    secure = {"drop_out": 0.2, "collusion": 0.2}
    found = describe(plan(validate(Scenario, noisy(secure=secure), "noisy")))
    (said,) = [line.strip() for line in found.splitlines() if "Noise of a sum" in line]
    # Of a sum of 4, one may collude, and 6 devices have √2 times the noise of 3.
    assert said == (
        "Noise of a sum: standard deviation 0.1 from the 3 devices whose noise is certain, "
        "1.41 times as much from the 6 of the largest round"
    )
    assert "Noise of a sum" not in describe(plan(validate(Scenario, settings(SECURE), "secure")))


PACK = "dev-0002..dev-0003"
IN_SHARES = KillAt(PACK, "secure_step", 2, "shares")
IN_OPENING = KillAt(PACK, "secure_step", 1, "opening")


@pytest.mark.parametrize(
    "kills",
    [(), (IN_SHARES,), (IN_OPENING, KillAt("server", "received", 3))],
    ids=["none", "a pack", "both"],
)
def test_devices_of_one_process_hide_their_updates(
    kills: tuple[KillAt, ...], fleet: SimulatedFleet
) -> None:
    of_updates = fleet.run(settings(PLAIN, groups=[{"name": "dev", "count": 5}]))
    packs = [{"name": "dev", "count": 5, "devices_per_process": 2}]
    secure = fleet.run(settings(SECURE, groups=packs), *kills)
    assert_same_model(secure, of_updates)
    assert_never_counted_twice(secure)


@pytest.mark.parametrize("event", ["round_opened", "received", "round_committed"])
@pytest.mark.parametrize("process", ["server", "dev-0001"])
def test_a_death_changes_nothing(process: Any, event: Any, fleet: SimulatedFleet) -> None:
    undisturbed = fleet.run(settings(PLAIN))
    killed = fleet.run(settings(SECURE), KillAt(process, event, 2))
    assert_same_model(killed, undisturbed)
    assert_never_counted_twice(killed)
