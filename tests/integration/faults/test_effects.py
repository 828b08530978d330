"""The effect of every fault that acts inside devices, in whole runs; and how runs record it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.integration.faults.playing import CLIENTS, STRUCK, WHOLE, Play, on_struck, scenario

from muster.client.faults.update_effects import MOST_DAMAGE
from muster.client.training.local import train
from muster.emulator.fleet.lives import task_of
from muster.emulator.scenario.population import population
from muster.tasks.parts import vector_of


def test_offline_devices_decline_and_come_back(play: Play) -> None:
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


def test_a_group_has_an_outage_as_a_whole(play: Play) -> None:
    groups = [{"name": "dev", "count": 2}, {"name": "other", "count": 2}]
    outage = {"do": "offline", "target": {"group": "dev"}, "when": {"round": 2}, "for_rounds": 1}
    done = play(outage, groups=groups)
    rows = done.contributions.groupby("call_round")["client"].apply(list)
    assert rows[2] == ["other-0000", "other-0001"]
    assert rows[3] == ["dev-0000", "dev-0001", "other-0000", "other-0001"]


def test_slow_devices_miss_the_deadline_by_the_model(play: Play) -> None:
    # 2 steps of 8 examples at 10 examples a second take 1.6 s; four times as long, 6.4 s.
    done = play(on_struck("slow", factor=4.0), server={"rounds": 6, "deadline_s": 5.0})
    took = done.contributions[done.contributions["client"] == STRUCK]
    assert done.outcomes(STRUCK) == [(3, "late", "deadline"), (4, "late", "deadline")]
    assert len(took) == 6
    modelled = done.answers[done.answers["client"] == STRUCK].set_index("round")["modelled_s"]
    np.testing.assert_allclose(modelled, [1.6, 1.6, 6.4, 6.4, 1.6, 1.6])
    assert done.states("slow-1") == WHOLE


def test_a_slow_device_is_recognised_also_without_rounds_before(play: Play) -> None:
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
    play: Play, kind: str, more: dict[str, Any], reason: str
) -> None:
    done = play(on_struck(kind, **more))
    refused = [row for row in done.outcomes(STRUCK) if row[1] == "refused"]
    assert refused == [(3, "refused", reason), (4, "refused", reason)]
    assert set(done.answers["decision"]) == {"accept"}
    assert done.states(f"{kind}-1") == WHOLE
    assert done.summary["outcomes"]["folded"] == 22


@pytest.mark.parametrize("kind", ["nan", "wrong-shape", "false-examples"])
def test_updates_in_chunks_are_refused_too(play: Play, kind: str) -> None:
    more = {"task": {"name": "linear", "dimension": 17_000, "examples_per_client": 4}}
    more |= {"training": {"learning_rate": 1e-6, "local_steps": 1, "batch_size": 4}}
    done = play(on_struck(kind), **more)
    refused = [call for call, outcome, _ in done.outcomes(STRUCK) if outcome == "refused"]
    assert refused == [3, 4]
    assert done.summary["vacuous"] == []


@pytest.mark.parametrize("codec", ["float16", "int8", {"kind": "top-k", "ratio": 0.5}])
def test_a_nan_is_refused_in_every_codec_and_leaves_no_trace(play: Play, codec: Any) -> None:
    group = {"name": "dev", "count": 4, "link": {"compression": codec}}
    done = play(on_struck("nan"), groups=[group])
    assert done.outcomes(STRUCK) == [(3, "refused", "not finite"), (4, "refused", "not finite")]
    assert np.isfinite(done.model).all()


@pytest.mark.parametrize("kind", ["duplicate", "replay"])
@pytest.mark.parametrize("size", ["small", "large"])
def test_updates_that_come_again_count_once(play: Play, kind: str, size: str) -> None:
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


@pytest.mark.parametrize(
    "fault", [{"do": "corrupt", "times": 2}, {"do": "reordered"}], ids=lambda fault: fault["do"]
)
@pytest.mark.parametrize("size", ["small", "large"])
def test_updates_that_are_damaged_on_their_way_are_sent_again(
    play: Play, fault: dict[str, Any], size: str
) -> None:
    more: dict[str, Any] = {}
    if size == "large":  # updates travel in chunks
        more = {"task": {"name": "linear", "dimension": 17_000, "examples_per_client": 4}}
        more |= {"training": {"learning_rate": 1e-6, "local_steps": 1, "batch_size": 4}}
    usual, done = play(**more), play({**on_struck(fault["do"]), **fault}, **more)
    assert done.summary["model_sha256"] == usual.summary["model_sha256"]
    damaged = [
        (call, "refused", "checksum") for call in (3, 4) for _ in range(fault.get("times", 1))
    ]
    assert done.outcomes(STRUCK) == damaged
    assert done.states(f"{fault['do']}-1") == WHOLE
    assert done.summary["outcomes"]["folded"] == usual.summary["outcomes"]["folded"] == 24
    # Damaged bodies travel too: each of them has the size of an update.
    size_of_update = usual.summary["bytes_up"] // 24
    sent_again = done.summary["bytes_up"] - usual.summary["bytes_up"]
    assert sent_again == len(damaged) * size_of_update


def test_damage_by_several_faults_ends_before_the_device_gives_up(play: Play) -> None:
    faults = [on_struck("corrupt", name=f"c{number}", times=3) for number in range(3)]
    more: dict[str, Any] = {"task": {"name": "linear", "dimension": 17_000}}
    more |= {"training": {"learning_rate": 1e-6, "local_steps": 1, "batch_size": 4}}
    done = play(*faults, **more)
    assert len(done.outcomes(STRUCK)) == 2 * MOST_DAMAGE
    assert done.summary["outcomes"]["folded"] == 24


def expected_first_round(change: Any, factor_of_weight: float = 1.0) -> np.ndarray:
    """The model after one round in which `change` is applied to the delta of STRUCK, from updates
    that are trained here."""
    read = scenario()
    residents = population(read)
    opened = task_of(read, residents).open(4, 2)
    module = opened.module()
    start = vector_of(module)
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
    play: Play, fault: dict[str, Any], change: Any, factor: float
) -> None:
    once = {"target": {"names": [STRUCK]}, "when": {"round": 1}}
    done = play({**fault, **once}, server={"rounds": 1})
    np.testing.assert_allclose(done.model, expected_first_round(change, factor), rtol=2e-6)
    assert done.summary["vacuous"] == []


def test_faults_of_one_update_act_one_after_the_other(play: Play) -> None:
    once = {"target": {"names": [STRUCK]}, "when": {"round": 1}}
    two = {"do": "scaled", "factor": 3.0, **once}, {"do": "sign-flip", **once}
    done = play(*two, server={"rounds": 1})
    np.testing.assert_allclose(done.model, expected_first_round(lambda d: -3 * d), rtol=2e-6)


def test_a_huge_update_has_the_stated_size(play: Play) -> None:
    once = {"target": {"names": [STRUCK]}, "when": {"round": 1}}
    done = play({"do": "huge", "size": 1e6, **once}, server={"rounds": 1})
    # One of four devices with equal numbers of examples moves every entry by 250,000.
    np.testing.assert_allclose(np.abs(done.model), 250_000, rtol=1e-3)


def test_a_limit_of_the_norm_refuses_what_is_huge(play: Play) -> None:
    guarded = {"rounds": 6, "guard": {"max_norm": 100.0}}
    done = play(on_struck("huge"), server=guarded)
    assert done.outcomes(STRUCK) == [(3, "refused", "norm"), (4, "refused", "norm")]


def test_flipped_labels_poison_the_training(play: Play) -> None:
    digits = {
        "task": {"name": "digits", "model": "softmax", "partition": {"kind": "iid"}},
        "training": {"learning_rate": 0.5, "local_epochs": 2},
    }
    everybody = {"do": "label-flip", "when": {"round": 1}}
    usual, done = play(**digits), play(everybody, **digits)
    assert usual.summary["final"]["accuracy"] > 0.7
    # A model that has learned y' = 9 − y is right about no digit, because no y is 9 − y.
    assert done.summary["final"]["accuracy"] < 0.1


def test_after_a_fault_of_updates_devices_are_honest_again(play: Play) -> None:
    """With error feedback: what a poisoned update left out is not sent later."""
    codec = {"kind": "top-k", "ratio": 0.5}
    group = {"name": "dev", "count": 4, "link": {"compression": codec}}
    rider = play(on_struck("nan"), groups=[group])
    assert np.abs(rider.model).max() < 10
    assert rider.states("nan-1") == WHOLE


def test_faults_act_in_the_buffered_mode_too(play: Play) -> None:
    server = {"rounds": 8, "mode": {"kind": "buffered", "k": 2, "concurrency": 4}}
    gone = {"do": "offline", "target": {"names": [STRUCK]}, "when": {"at_s": 2.0}, "for_s": 5.0}
    bad = {"do": "nan", "target": {"percent": 50}, "when": {"round": 3}, "for_rounds": 3}
    done = play(gone, bad, server=server, clock={"round_s": 1.0})
    assert done.summary["vacuous"] == []
    again = play(gone, bad, server=server, clock={"round_s": 1.0})
    assert done.summary["model_sha256"] == again.summary["model_sha256"]


def test_a_fault_of_ones_own_is_a_class_in_a_module(
    play: Play, tmp_path: Path, monkeypatch: Any
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
