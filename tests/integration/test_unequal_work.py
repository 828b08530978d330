"""Whole runs of devices that take different numbers of local steps, or whose losses count."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from muster.client.training.local import train
from muster.client.training.settings import GroupTraining
from muster.client.training.trainer import Trained
from muster.common.config import validate
from muster.common.errors import ConfigError
from muster.common.seeds import FloatArray
from muster.emulator.fleet.lives import task_of
from muster.emulator.planning import plan
from muster.emulator.records.account import Account
from muster.emulator.scenario.population import population
from muster.emulator.scenario.scenario import Scenario
from muster.simulation.whole_run import simulate_run
from muster.tasks.parts import vector_of

STEPS = {"quick": 20, "slow": 2}


def halved(*given: Any, **named: Any) -> Trained:
    """A trainer of one's own."""
    trained = train(*given, **named)
    return replace(trained, delta=trained.delta / np.float32(2))


def as_grouped(client: str, examples: int, *, longer: int = 0) -> dict[str, int]:
    """What `quadratics` says of groups, said of devices."""
    assert examples > 0
    return {"local_steps": STEPS[client.rpartition("-")[0]] + longer}


def quadratics(aggregator: str | dict[str, Any], rounds: int, **training: Any) -> Scenario:
    rate = {"kind": "inverse", "initial": 0.05, "shift": 20.0}
    settings = {"learning_rate": rate, "local_steps": 1, "batch_size": "full", **training}
    return validate(
        Scenario,
        {
            "name": "quadratics",
            "seed": 3,
            "task": {"name": "quadratic", "dimension": 4, "condition": 1, "heterogeneity": 1.0},
            "training": settings,
            "server": {"rounds": rounds, "aggregator": aggregator, "evaluate_every": rounds},
            "groups": [
                {"name": name, "count": 3, "training": {"local_steps": steps}}
                for name, steps in STEPS.items()
            ],
        },
        "quadratics",
    )


def played(scenario: Scenario, folder: Path) -> FloatArray:
    """The model of a whole run."""
    assert simulate_run(scenario, folder) == "completed"
    (model,) = load_file(folder / "model.safetensors").values()
    return np.asarray(model.ravel(), np.float64)


def optima(scenario: Scenario) -> FloatArray:
    """θ_i of all devices, shape (devices, dimension). With condition 1, f_i = ½ ‖θ − θ_i‖²."""
    opened = task_of(scenario, population(scenario)).open(scenario.devices, scenario.seed)
    solutions = []
    for index in range(scenario.devices):
        examples = opened.client(index)
        solutions.append(np.linalg.lstsq(examples.x, examples.y.ravel())[0])
    return np.array(solutions, np.float64)


def test_with_unequal_steps_fedavg_ends_at_a_wrong_point_and_fednova_at_the_right_one(
    tmp_path: Path,
) -> None:
    scenario = quadratics("fedavg", 400)
    theta = optima(scenario)
    right = theta.mean(axis=0)
    # FedAvg's fixed point for small rates: the mean of the optima weighted by local steps
    # (Wang et al., theorem 1).
    wrong = np.average(theta, axis=0, weights=np.repeat(list(STEPS.values()), 3))
    apart = np.linalg.norm(wrong - right)
    fedavg = played(scenario, tmp_path / "fedavg")
    fednova = played(quadratics("fednova", 400), tmp_path / "fednova")
    assert np.linalg.norm(fedavg - wrong) < 0.05 * apart
    assert np.linalg.norm(fedavg - right) > 0.95 * apart
    assert np.linalg.norm(fednova - right) < 0.05 * apart


def accumulated(steps: int, momentum: float, shrink: float) -> float:
    """‖a‖₁ for heavy-ball momentum, or for a proximal term that leaves `shrink` = 1 − η·μ of a
    distance in a step: how far a constant gradient of 1 gets in units of η, or the sum of what is
    left of each gradient."""
    if momentum:
        v, moved = 0.0, 0.0
        for _ in range(steps):
            v = momentum * v + 1
            moved += v
        return moved
    return sum(shrink**k for k in range(steps))


@pytest.mark.parametrize(
    ("aggregator", "training"),
    [
        ("fednova", {}),
        ("fednova", {"optimizer": {"kind": "sgd", "momentum": 0.9}}),
        ("fednova", {"proximal_mu": 4.0}),
        ({"kind": "q-fedavg", "q": 2.0}, {}),
    ],
)
def test_the_model_is_that_of_the_paper(
    tmp_path: Path, aggregator: str | dict[str, Any], training: dict[str, Any]
) -> None:
    scenario = quadratics(aggregator, 6, **training)
    found = played(scenario, tmp_path / "run")
    opened = task_of(scenario, population(scenario)).open(scenario.devices, scenario.seed)
    module = opened.module()
    theta = vector_of(module).astype(np.float64)
    optimum = optima(scenario)
    with Account(tmp_path / "run") as account:
        clients: list[Any] = list(account.clients.itertuples())
        sent = account.contributions.set_index(["round", "client"])
    for round in range(1, 7):
        eta = 0.05 * 20 / (round - 1 + 20)
        deltas, counts, losses = [], [], []
        for client in clients:
            settings = scenario.training.model_copy(update={"local_steps": STEPS[client.group]})
            trained = train(
                opened,
                module,
                theta.astype(np.float32),
                opened.client(client.position),
                settings,
                seed=scenario.seed,
                client=client.client,
                round=round,
                base_version=round - 1,
            )
            row = sent.loc[(round, client.client)]
            assert row["steps"] == STEPS[client.group]
            deltas.append(trained.delta.astype(np.float64))
            momentum = 0.9 if "optimizer" in training else 0.0
            shrink = 1 - eta * training.get("proximal_mu", 0.0)
            counts.append(accumulated(STEPS[client.group], momentum, shrink))
            losses.append(0.5 * ((theta - optimum[client.position]) ** 2).sum())
            if aggregator != "fednova":
                assert row["initial_loss"] == pytest.approx(losses[-1], rel=1e-4)
        if aggregator == "fednova":  # all devices have as many examples
            normalised = [delta / count for delta, count in zip(deltas, counts, strict=True)]
            theta = theta + np.mean(counts) * np.mean(normalised, axis=0)
        else:
            q, big_l = 2.0, 1 / eta
            delta_w = [-big_l * delta for delta in deltas]
            numerator = sum(f**q * d for f, d in zip(losses, delta_w, strict=True))
            h = [
                q * f ** (q - 1) * (d @ d) + big_l * f**q
                for f, d in zip(losses, delta_w, strict=True)
            ]
            theta = theta - numerator / sum(h)
    np.testing.assert_allclose(found, theta, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dimension", [3, 2200], ids=["inline", "in chunks"])
def test_losses_that_are_not_finite_leave_rounds_empty_and_do_not_stop_the_run(
    tmp_path: Path, dimension: int
) -> None:
    # The first update has a norm of 1e8, and seven layers of such weights overflow float32. So from
    # the second round on no device can tell its loss, nor can it after training again.
    scenario = validate(
        Scenario,
        {
            "name": "overflow",
            "task": {"name": "linear", "dimension": dimension, "model": "mlp", "hidden": [8] * 6},
            "training": {
                "learning_rate": 1e6,
                "optimizer": "adam",
                "local_steps": 1,
                "clip_update": 1e8,
            },
            "server": {"rounds": 3, "aggregator": {"kind": "q-fedavg", "q": 0}},
            "groups": [{"name": "dev", "count": 2}],
        },
        "overflow",
    )
    assert simulate_run(scenario, tmp_path) == "completed"
    with Account(tmp_path) as account:
        assert account.rounds["folded"].tolist() == [2, 0, 0]
        outcomes = account.contributions.groupby("round")[["outcome", "reason"]].agg(list)
    assert outcomes["outcome"].tolist() == [["folded"] * 2, ["refused"] * 2, ["refused"] * 2]
    assert outcomes["reason"].tolist()[1:] == [["loss"] * 2] * 2


def test_settings_of_all_groups_are_those_of_the_scenario(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "learning_rate": 0.02,
        "batch_size": 3,
        "optimizer": {"kind": "sgd", "momentum": 0.5, "weight_decay": 0.1},
        "clip_norm": 0.5,
        "proximal_mu": 0.2,
        "clip_update": 0.05,
        "update_noise": 1e-3,
        "projection_radius": 0.1,
        "trainer": f"{__name__}:halved",
    }
    everywhere = quadratics("fedavg", 3, **settings)
    own = validate(GroupTraining, settings, "test").given
    groups = [
        group.model_copy(update={"training": group.training.model_copy(update=own)})
        for group in everywhere.groups
    ]
    in_groups = quadratics("fedavg", 3, batch_size=1).model_copy(update={"groups": groups})
    expected, found = played(everywhere, tmp_path / "a"), played(in_groups, tmp_path / "b")
    np.testing.assert_array_equal(found, expected)
    for left in (
        ["optimizer"],
        ["clip_norm"],
        ["proximal_mu"],
        ["projection_radius"],
        ["trainer"],
        ["update_noise"],
        ["update_noise", "clip_update"],
    ):  # each of them matters
        without = quadratics("fedavg", 3, **{k: v for k, v in settings.items() if k not in left})
        assert (played(without, tmp_path / "-".join(left)) != expected).any(), left


def test_only_the_group_that_adds_noise_has_to_clip() -> None:
    groups = [
        {"name": "private", "count": 1, "training": {"clip_update": 1.0, "update_noise": 0.1}},
        {"name": "open", "count": 1},
    ]
    task = {"name": "quadratic", "dimension": 2}
    values = {"name": "one", "task": task, "server": {"rounds": 1}, "groups": groups}
    assert [each.update_noise for each in validate(Scenario, values, "one").trainings] == [0.1, 0.0]
    values["groups"] = [{**groups[0], "training": {"update_noise": 0.1}}, groups[1]]
    with pytest.raises(ConfigError, match="needs clip_update"):
        validate(Scenario, values, "one")
    privacy = {"clip": 1.0, "noise": 1.0, "where": "device"}
    values |= {"groups": groups, "server": {"rounds": 1, "privacy": privacy}}
    with pytest.raises(ConfigError, match=r"training.clip_update: server\.privacy with where = "):
        validate(Scenario, values, "one")


def by_device(function: object, deadline_s: float | None = None, **group: Any) -> Scenario:
    """Groups that do not differ, and a function for each device."""
    usual = quadratics("fedavg", 3)
    groups = [{"name": each.name, "count": each.count, **group} for each in usual.groups]
    training = {**usual.training.model_dump(exclude_none=True), "by_device": function}
    values = {**usual.model_dump(exclude_none=True), "groups": groups, "training": training}
    values["server"]["deadline_s"] = deadline_s
    return validate(Scenario, values, "by device")


def test_settings_of_devices_are_those_of_their_groups(tmp_path: Path) -> None:
    expected = played(quadratics("fedavg", 3), tmp_path / "groups")
    function = f"{__name__}:as_grouped"
    found = played(by_device(function, devices_per_process=3), tmp_path / "devices")
    np.testing.assert_array_equal(found, expected)
    longer = by_device({"kind": function, "longer": 1}, 50.0, device={"examples_per_s": 1.0})
    assert (played(longer, tmp_path / "longer") != expected).any()
    with Account(tmp_path / "longer") as account:
        sent = account.contributions
    steps = sent["client"].str.rpartition("-")[0].map(STEPS) + 1
    np.testing.assert_array_equal(sent["steps"], steps)
    late = {group.name: int(group.late.sum()) for group in plan(longer).groups}
    assert late == {"quick": 9, "slow": 0}
    quick = sent[sent["client"].str.startswith("quick")]
    assert quick["reason"].tolist() == ["deadline"] * 9


def nothing(client: str, examples: int) -> None:
    """Says nothing, where a table is expected."""


def wrong(client: str, examples: int) -> dict[str, int]:
    return {"local_step": examples}


def failing(client: str, examples: int) -> dict[str, int]:
    raise KeyError(client)


def counting(client: str, examples: int, seen: list[int] = []) -> dict[str, int]:  # noqa: B006
    seen.append(examples)
    return {"local_steps": len(seen)}


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (counting, "quick-0000: it returned .*, and .* when it was called again; expected the sam"),
        (nothing, "for quick-0000: expected a table such as {'local_epochs': 2}, .* found None"),
        (wrong, "for quick-0000: 1 mistake\n  local_step: "),
        (failing, "for quick-0000: it raised KeyError: 'quick-0000'"),
    ],
)
def test_a_function_by_device_that_says_something_else_is_refused_before_the_start(
    tmp_path: Path, function: Any, why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        simulate_run(by_device(f"{__name__}:{function.__name__}"), tmp_path / "run")
    assert not (tmp_path / "run/ledger.sqlite").exists()


@pytest.mark.parametrize(
    ("aggregator", "own", "why"),
    [
        ("fednova", {"optimizer": "adam"}, "found training.optimizer = 'adam'"),
        ("fednova", {"proximal_mu": 0.5}, r"found groups.training.proximal_mu"),
        ("fednova", {"optimizer": {"kind": "sgd", "momentum": 0.9}}, "found groups.training.optim"),
        ("scaffold", {"optimizer": {"kind": "sgd", "momentum": 0.9}}, "holds only for plain SGD"),
        ("scaffold", {"projection_radius": 1.0}, "found training.projection_radius"),
        ("fednova", {"trainer": f"{__name__}:halved"}, "found training.trainer = "),
        ("fednova", {"clip_update": 1.0}, "found training.clip_update"),
        ("fednova", {"by_device": f"{__name__}:as_grouped"}, "found training.by_device"),
        ("q-fedavg", {"by_device": f"{__name__}:as_grouped"}, "may give devices others"),
        ("fedavg", {"update_noise": 1.0}, "needs clip_update"),
    ],
)
def test_rules_that_compute_with_steps_refuse_other_steps_of_a_group(
    aggregator: str, own: dict[str, Any], why: str
) -> None:
    values = {
        "name": "refused",
        "task": {"name": "quadratic", "dimension": 2},
        "server": {"rounds": 1, "aggregator": aggregator},
        "groups": [{"name": "a", "count": 1}, {"name": "b", "count": 1, "training": own}],
    }
    with pytest.raises(ConfigError, match=why):
        validate(Scenario, values, "refused")
