"""The effect of every fault that acts inside devices, in whole runs; and how runs record it."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file

from muster.client.training import train
from muster.common.config import validate
from muster.common.errors import ConfigError
from muster.emulator.experiments.planning import plan
from muster.emulator.faults.of_scenario import ScenarioFaults
from muster.emulator.faults.recording import record_afterwards
from muster.emulator.fleet.lives import task_of
from muster.emulator.fleet.population import population
from muster.emulator.launch.docker.compose_command import require_supported
from muster.emulator.results.account import Account
from muster.emulator.scenario.scenario import Scenario
from muster.emulator.simulation.whole_run import simulate_run
from muster.tasks.models import initial_vector

CLIENTS = ("dev-0000", "dev-0001", "dev-0002", "dev-0003")
EVENTS = [f"fault_{state}" for state in ("planned", "applied", "observed", "healed", "verified")]
STRUCK = "dev-0002"


class Played(NamedTuple):
    folder: Path
    summary: dict[str, Any]
    answers: pd.DataFrame
    contributions: pd.DataFrame
    events: list[dict[str, Any]]

    @property
    def model(self) -> np.ndarray:
        (tensors,) = [load_file(self.folder / "model.safetensors")]
        return np.concatenate([tensor.ravel() for tensor in tensors.values()])

    def outcomes(self, client: str) -> list[tuple[int, str, str]]:
        """Round of the call, outcome and reason of all updates of a client that did not count."""
        rows = self.contributions[self.contributions["client"] == client]
        lost = rows[rows["outcome"] != "folded"]
        columns = lost["call_round"], lost["outcome"], lost["reason"].fillna("")
        return [
            (int(call), outcome, reason) for call, outcome, reason in zip(*columns, strict=True)
        ]

    def states(self, fault: str) -> list[tuple[str, int | None]]:
        """The events of a fault, with their rounds."""
        found = [(e["event"], e["round"]) for e in self.events if e["fault"] == fault]
        return [(event.removeprefix("fault_"), round) for event, round in found]


def scenario(*faults: dict[str, Any], **more: Any) -> Scenario:
    values: dict[str, Any] = {
        "name": "faults",
        "seed": 2,
        "task": {"name": "linear", "dimension": 4, "heterogeneity": 1.0},
        "training": {"learning_rate": 0.05, "local_steps": 2, "batch_size": 8},
        "server": {"rounds": 6},
        "groups": [{"name": "dev", "count": 4, "device": {"examples_per_s": 10}}],
        "faults": list(faults),
    }
    return validate(Scenario, {**values, **more}, "faults")


@pytest.fixture
def play(tmp_path: Path) -> Any:
    number = iter(range(100))

    def played(*faults: dict[str, Any], **more: Any) -> Played:
        folder = tmp_path / str(next(number))
        assert simulate_run(scenario(*faults, **more), folder) == "completed"
        summary = json.loads((folder / "summary.json").read_text())
        with Account(folder) as account:
            events = list(account.events(*EVENTS))
            return Played(folder, summary, account.answers, account.contributions, events)

    return played


def on_struck(do: str, **more: Any) -> dict[str, Any]:
    target = {"names": [STRUCK]}
    return {"do": do, "target": target, "when": {"round": 3}, "for_rounds": 2, **more}


WHOLE = [("planned", 3), ("applied", 3), ("observed", 3), ("healed", 5), ("verified", 5)]


def test_offline_devices_decline_and_come_back(play: Any) -> None:
    done = play(on_struck("offline"))
    declined = done.answers[done.answers["decision"] == "decline"]
    assert declined[["round", "client", "reason"]].to_numpy().tolist() == [
        [3, STRUCK, "offline"], [4, STRUCK, "offline"]
    ]  # fmt: skip
    assert done.states("offline-1") == WHOLE
    assert done.summary["vacuous"] == []
    assert done.summary["faults"] == [
        {
            "fault": "offline-1",
            "do": "offline",
            "targets": 1,
            "planned": 1,
            "applied": 1,
            "observed": 1,
            "healed": 1,
            "verified": 1,
            "seen": "1 × decline (offline)",
            "rounds": [{"number": 1, "first": 3, "healed": 5}],
        }
    ]


def test_a_group_has_an_outage_as_a_whole(play: Any) -> None:
    groups = [{"name": "dev", "count": 2}, {"name": "other", "count": 2}]
    outage = {"do": "offline", "target": {"group": "dev"}, "when": {"round": 2}, "for_rounds": 1}
    done = play(outage, groups=groups)
    rows = done.contributions.groupby("call_round")["client"].apply(list)
    assert rows[2] == ["other-0000", "other-0001"]
    assert rows[3] == ["dev-0000", "dev-0001", "other-0000", "other-0001"]


def test_slow_devices_miss_the_deadline_by_the_model(play: Any) -> None:
    # 2 steps of 8 examples at 10 examples a second take 1.6 s; four times as long, 6.4 s.
    done = play(on_struck("slow", factor=4.0), server={"rounds": 6, "deadline_s": 5.0})
    took = done.contributions[done.contributions["client"] == STRUCK]
    assert done.outcomes(STRUCK) == [(3, "late", "deadline"), (4, "late", "deadline")]
    assert len(took) == 6
    modelled = done.answers[done.answers["client"] == STRUCK].set_index("round")["modelled_s"]
    np.testing.assert_allclose(modelled, [1.6, 1.6, 6.4, 6.4, 1.6, 1.6])
    assert done.states("slow-1") == WHOLE


def test_a_slow_device_is_recognised_also_without_rounds_before(play: Any) -> None:
    done = play({**on_struck("slow"), "when": {"round": 1}})
    assert ("observed", 3) in done.states("slow-1")


@pytest.mark.parametrize(
    ("kind", "more", "reason"),
    [
        ("nan", {}, "not finite"),
        ("wrong-shape", {}, "length"),
        ("false-examples", {}, "examples"),
    ],
)
def test_the_server_refuses_wrong_updates_and_the_round_goes_on(
    play: Any, kind: str, more: dict[str, Any], reason: str
) -> None:
    done = play(on_struck(kind, **more))
    refused = [row for row in done.outcomes(STRUCK) if row[1] == "refused"]
    assert refused == [(3, "refused", reason), (4, "refused", reason)]
    assert done.states(f"{kind}-1") == WHOLE
    assert done.summary["outcomes"]["folded"] == 22


@pytest.mark.parametrize("kind", ["nan", "wrong-shape", "false-examples"])
def test_updates_in_chunks_are_refused_too(play: Any, kind: str) -> None:
    more = {"task": {"name": "linear", "dimension": 17_000, "examples_per_client": 4}}
    more |= {"training": {"learning_rate": 1e-6, "local_steps": 1, "batch_size": 4}}
    done = play(on_struck(kind), **more)
    refused = [call for call, outcome, _ in done.outcomes(STRUCK) if outcome == "refused"]
    assert refused == [3, 4]
    assert done.summary["vacuous"] == []


@pytest.mark.parametrize("codec", ["float16", "int8", {"kind": "top-k", "ratio": 0.5}])
def test_a_nan_is_refused_in_every_codec_and_leaves_no_trace(play: Any, codec: Any) -> None:
    group = {"name": "dev", "count": 4, "link": {"compression": codec}}
    done = play(on_struck("nan"), groups=[group])
    assert done.outcomes(STRUCK) == [(3, "refused", "not finite"), (4, "refused", "not finite")]
    assert np.isfinite(done.model).all()


@pytest.mark.parametrize("kind", ["duplicate", "replay"])
@pytest.mark.parametrize("size", ["small", "large"])
def test_updates_that_come_again_count_once(play: Any, kind: str, size: str) -> None:
    more: dict[str, Any] = {}
    if size == "large":  # updates travel in chunks
        more = {"task": {"name": "linear", "dimension": 17_000, "examples_per_client": 4}}
        more |= {"training": {"learning_rate": 1e-6, "local_steps": 1, "batch_size": 4}}
    usual, done = play(**more), play(on_struck(kind), **more)
    assert done.summary["model_sha256"] == usual.summary["model_sha256"]
    assert done.states(f"{kind}-1")[:3] == WHOLE[:3]
    assert {outcome for _, outcome, _ in done.outcomes(STRUCK)} <= {"duplicate", "late"}
    assert len(done.outcomes(STRUCK)) == 2
    assert done.summary["outcomes"]["folded"] == usual.summary["outcomes"]["folded"] == 24


def expected_first_round(change: Any, factor_of_weight: float = 1.0) -> np.ndarray:
    """The model after one round in which `change` is applied to the delta of STRUCK, from updates
    that are trained here."""
    read = scenario()
    residents = population(read)
    opened = task_of(read, residents).open(4, 2)
    module = opened.module()
    start = initial_vector(module)
    total, weights = np.zeros(len(start)), 0.0
    for index, client in enumerate(CLIENTS):
        trained = train(
            opened,
            module,
            start,
            opened.client(index),
            read.training,
            seed=2,
            client=client,
            round=1,
            base_version=0,
        )
        delta, weight = trained.delta.astype(np.float64), float(trained.examples)
        if client == STRUCK:
            delta, weight = change(delta), max(1.0, np.floor(weight * factor_of_weight))
        total, weights = total + weight * delta, weights + weight
    return np.asarray(start + total / weights)


@pytest.mark.parametrize(
    ("fault", "change", "factor"),
    [
        ({"do": "scaled", "factor": -10.0}, lambda d: -10 * d, 1.0),
        ({"do": "sign-flip"}, lambda d: -d, 1.0),
        ({"do": "free-rider"}, lambda d: 0 * d, 1.0),
        ({"do": "false-examples", "factor": 0.25}, lambda d: d, 0.25),
    ],
    ids=lambda value: value["do"] if isinstance(value, dict) else "",
)
def test_poisoned_updates_change_the_model_as_arithmetic_says(
    play: Any, fault: dict[str, Any], change: Any, factor: float
) -> None:
    once = {"target": {"names": [STRUCK]}, "when": {"round": 1}}
    done = play({**fault, **once}, server={"rounds": 1})
    np.testing.assert_allclose(done.model, expected_first_round(change, factor), rtol=2e-6)
    assert done.summary["vacuous"] == []


def test_faults_of_one_update_act_one_after_the_other(play: Any) -> None:
    once = {"target": {"names": [STRUCK]}, "when": {"round": 1}}
    two = {"do": "scaled", "factor": 3.0, **once}, {"do": "sign-flip", **once}
    done = play(*two, server={"rounds": 1})
    np.testing.assert_allclose(done.model, expected_first_round(lambda d: -3 * d), rtol=2e-6)


def test_a_huge_update_has_the_stated_size(play: Any) -> None:
    once = {"target": {"names": [STRUCK]}, "when": {"round": 1}}
    done = play({"do": "huge", "size": 1e6, **once}, server={"rounds": 1})
    # One of four devices with equal numbers of examples moves every entry by 250,000.
    np.testing.assert_allclose(np.abs(done.model), 250_000, rtol=1e-3)


def test_a_limit_of_the_norm_refuses_what_is_huge(play: Any) -> None:
    guarded = {"rounds": 6, "guard": {"max_norm": 100.0}}
    done = play(on_struck("huge"), server=guarded)
    assert done.outcomes(STRUCK) == [(3, "refused", "norm"), (4, "refused", "norm")]


def test_flipped_labels_poison_the_training(play: Any) -> None:
    digits = {
        "task": {"name": "digits", "model": "softmax", "partition": {"kind": "iid"}},
        "training": {"learning_rate": 0.5, "local_epochs": 2},
    }
    everybody = {"do": "label-flip", "when": {"round": 1}}
    usual, done = play(**digits), play(everybody, **digits)
    assert usual.summary["final"]["accuracy"] > 0.7
    # A model that has learned y' = 9 − y is right about no digit, because no y is 9 − y.
    assert done.summary["final"]["accuracy"] < 0.1


def test_after_a_fault_of_updates_devices_are_honest_again(play: Any) -> None:
    """With error feedback: what a poisoned update left out is not sent later."""
    codec = {"kind": "top-k", "ratio": 0.5}
    group = {"name": "dev", "count": 4, "link": {"compression": codec}}
    rider = play(on_struck("nan"), groups=[group])
    assert np.abs(rider.model).max() < 10
    assert rider.states("nan-1") == WHOLE


def test_the_plan_foresees_what_a_run_with_faults_does(play: Any) -> None:
    faults = (
        {"do": "offline", "target": {"percent": 50}, "when": {"round": 2}, "for_rounds": 3},
        {"do": "slow", "target": {"count": 2}, "when": {"at_s": 120.0}, "for_s": 180.0},
        {"do": "offline", "when": {"mean_up_s": 200.0, "mean_down_s": 90.0}},
    )
    more = {"server": {"rounds": 12, "deadline_s": 5.0, "minimum": 1}}
    done = play(*faults, **more)
    foreseen = plan(scenario(*faults, **more))
    counts = done.contributions.groupby(["call_round", "outcome"]).size().unstack(fill_value=0)
    counts = counts.reindex(range(1, 13), fill_value=0)
    (group,) = foreseen.groups
    np.testing.assert_array_equal(group.late, counts["late"])
    np.testing.assert_array_equal(group.delivered, counts["late"] + counts["folded"])


def test_a_fault_that_shows_nowhere_is_vacuous(play: Any) -> None:
    # Devices without a simulated state report no network, and nothing requires a free one.
    done = play(on_struck("metered"), on_struck("offline"))
    assert done.summary["vacuous"] == ["metered-1"]
    assert [state for state, _ in done.states("metered-1")] == ["planned", "applied", "healed"]


def test_the_timeline_is_in_the_run_folder(play: Any) -> None:
    done = play(on_struck("offline"))
    (fault,) = json.loads((done.folder / "faults.json").read_text())["faults"]
    assert fault["targets"] == [STRUCK]
    assert fault["occurrences"][0]["first_round"] == 3


def test_a_run_without_faults_has_neither_a_timeline_nor_keys_about_faults(play: Any) -> None:
    done = play()
    assert not (done.folder / "faults.json").exists()
    assert not {"faults", "vacuous"} & done.summary.keys()


def test_faults_act_in_the_buffered_mode_too(play: Any) -> None:
    server = {"rounds": 8, "mode": {"kind": "buffered", "k": 2, "concurrency": 4}}
    gone = {"do": "offline", "target": {"names": [STRUCK]}, "when": {"at_s": 2.0}, "for_s": 5.0}
    bad = {"do": "nan", "target": {"percent": 50}, "when": {"round": 3}, "for_rounds": 3}
    done = play(gone, bad, server=server, clock={"round_s": 1.0})
    assert done.summary["vacuous"] == []
    again = play(gone, bad, server=server, clock={"round_s": 1.0})
    assert done.summary["model_sha256"] == again.summary["model_sha256"]


def test_a_fault_of_ones_own_is_a_class_in_a_module(
    play: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    (tmp_path / "my_faults.py").write_text(
        "from dataclasses import replace\n"
        "from muster.client.faults import UpdateFault\n"
        "class Halved(UpdateFault):\n"
        "    '''Sends half of its update.'''\n"
        "    def tamper(self, trained, draws):\n"
        "        return replace(trained, delta=trained.delta / 2)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    once = {"target": {"names": [STRUCK]}, "when": {"round": 1}}
    done = play({"do": "my_faults:Halved", **once}, server={"rounds": 1})
    np.testing.assert_allclose(done.model, expected_first_round(lambda d: d / 2), rtol=2e-6)


def test_a_simulated_run_refuses_faults_of_processes() -> None:
    with pytest.raises(ConfigError, match="no processes and no links"):
        simulate_run(scenario({"do": "restart", "when": {"round": 3}}), Path("never"))


def test_a_run_that_goes_on_records_nothing_twice(play: Any) -> None:
    done = play(on_struck("offline"), on_struck("nan"))
    read = scenario(on_struck("offline"), on_struck("nan"))
    journal = (done.folder / "journal.jsonl").read_bytes()
    record_afterwards(done.folder, ScenarioFaults.of(read, population(read)))
    assert (done.folder / "journal.jsonl").read_bytes() == journal


def test_the_rest_of_a_fault_is_recorded_when_the_run_goes_on(play: Any) -> None:
    """As if the run had been killed in the fault: only what is missing is recorded."""
    done = play(on_struck("offline"))
    path = done.folder / "journal.jsonl"
    kept = [line for line in path.read_bytes().splitlines(True) if b'"fault_healed"' not in line]
    kept = [line for line in kept if b'"fault_verified"' not in line]
    path.write_bytes(b"".join(kept))
    read = scenario(on_struck("offline"))
    record_afterwards(done.folder, ScenarioFaults.of(read, population(read)))
    with Account(done.folder) as account:
        found = [(event["event"], event["round"]) for event in account.events(*EVENTS)]
    assert found == [(f"fault_{state}", round) for state, round in WHOLE]


def test_docker_compose_refuses_faults() -> None:
    with pytest.raises(ConfigError, match="use `muster run --backend docker`"):
        require_supported(scenario(on_struck("offline")))
