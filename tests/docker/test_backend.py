"""The same scenario in containers and as processes, and what happens to containers on the way."""

import subprocess
import threading
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from tests.own_personal import own_personal, parts_of
from tests.recorded_fleet import recorded_groups

from muster.common.clock import WallClock
from muster.common.config import validate
from muster.common.errors import ConfigError
from muster.emulator import run
from muster.emulator.launch.docker.daemon import connect, remove_all
from muster.emulator.launch.docker.services import FOLDER_LABEL, NAME_LABEL, project_of
from muster.emulator.scenario.scenario import Scenario
from muster.emulator.verification import Tolerances, verify

EXAMPLES = Path(__file__).parents[2] / "examples"

pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("images")]

THREE_GROUPS: dict[str, Any] = {
    "name": "three",
    "seed": 3,
    "clock": {"round_s": 900, "starts_at_h": 20},
    "task": {"name": "digits", "model": "mlp", "hidden": [100]},
    "server": {"rounds": 8, "evaluate_every": 4, "deadline_s": 0.3, "evaluate_groups": True},
    "groups": [
        {
            "name": "country",
            "count": 4,
            "device": {"profile": "phone"},
            "participation": {"drop_out": 0.1, "battery_min": 0.0},
            "link": {"profile": "3g", "up": "4 Mbit/s", "down": "8 Mbit/s", "rtt": "20 ms"},
            "shared_link": {"up": "6 Mbit/s"},
        },
        {
            "name": "town",
            "count": 3,
            "devices_per_container": 3,
            "availability": {"kind": "bernoulli", "probability": 0.7},
            "shared_link": {"slots": 2, "overflow": "subset"},
        },
        {"name": "office", "count": 1},
    ],
}


def scenario(**changes: Any) -> Scenario:
    return validate(Scenario, {**THREE_GROUPS, **changes}, "test")


def plain(rounds: int, count: int = 2, **group: Any) -> Scenario:
    return validate(
        Scenario,
        {
            "name": "plain",
            "task": {"name": "linear", "dimension": 5},
            "server": {"rounds": rounds, "evaluate_every": rounds, "heartbeat_s": 2.0},
            "groups": [{"name": "dev", "count": count, **group}],
            "launch": {"restarts": 3},
        },
        "test",
    )


def folder_of(thing: Any) -> str:
    """The run folder of a container or a network."""
    labels = thing.attrs.get("Labels") or thing.attrs["Config"]["Labels"]
    return str(labels[FOLDER_LABEL])


@pytest.fixture(autouse=True)
def nothing_left(tmp_path: Path) -> Iterator[None]:
    yield
    client = connect()
    there: list[Any] = client.containers.list(all=True, filters={"label": FOLDER_LABEL})
    there += client.networks.list(filters={"label": FOLDER_LABEL})
    left = [each.name for each in there if str(tmp_path) in folder_of(each)]
    for folder in tmp_path.iterdir():
        remove_all(client, folder, WallClock())
    client.close()
    assert not left


def on_round(number: int, deed: Callable[[], None]) -> Callable[[dict[str, Any]], None]:
    """A display that does something once a round is committed."""

    def show(event: dict[str, Any]) -> None:
        if event["event"] == "round_committed" and event["round"] == number:
            deed()

    return show


def docker(*arguments: str) -> None:
    subprocess.run(["docker", *arguments], check=True, capture_output=True, timeout=60)


def test_containers_and_processes_give_the_same(tmp_path: Path) -> None:
    contained = run(scenario(), out=tmp_path / "contained", backend="docker")
    processes = run(scenario(), out=tmp_path / "processes")
    if contained.summary["fingerprint"] == processes.summary["fingerprint"]:
        assert contained.summary["model_sha256"] == processes.summary["model_sha256"]
    columns = ["round", "client", "decision", "reason", "state", "x", "modelled_s"]
    first, second = (
        done.ledger.answers[columns].astype(object).where(lambda f: f.notna(), None)
        for done in (contained, processes)
    )
    assert {"accept", "decline"} <= set(first["decision"])
    pd.testing.assert_frame_equal(first, second)
    for name in ("server", "evaluation", "gateway-country", "country-0000"):
        assert (contained.folder / f"logs/{name}.log").is_file()
    assert list(contained.ledger.events("traffic"))
    assert (contained.folder / "devices/country-0000/state.bin").is_file()


def test_tables_and_recordings_are_read_in_containers_and_groups_share_a_link(
    tmp_path: Path,
) -> None:
    groups = recorded_groups(tmp_path / "files")
    recorded = scenario(groups=groups, server={"rounds": 4, "deadline_s": 30.0}, clock={})
    contained = run(recorded, out=tmp_path / "contained", backend="docker", report=False)
    processes = run(recorded, out=tmp_path / "processes", report=False)
    columns = ["round", "client", "decision", "reason", "modelled_s"]
    first, second = (done.ledger.answers[columns] for done in (contained, processes))
    pd.testing.assert_frame_equal(first, second)
    assert first["modelled_s"].nunique() > 4
    assert (contained.folder / "logs/gateway-region.log").is_file()


def test_an_example_whose_updates_outlive_their_round_gives_the_same(tmp_path: Path) -> None:
    read = tomllib.loads((EXAMPLES / "asynchronous.toml").read_text())
    read["server"].update(rounds=12, evaluate_every=6)
    read["server"]["mode"].update(k=2, concurrency=5)
    for group in read["groups"]:
        group.pop("devices_per_process")
        group.update(count=4, devices_per_container=4)
    short = validate(Scenario, read, "asynchronous")
    contained = run(short, out=tmp_path / "contained", backend="docker", report=False)
    processes = run(short, out=tmp_path / "processes", report=False)
    if contained.summary["fingerprint"] == processes.summary["fingerprint"]:
        assert contained.summary["model_sha256"] == processes.summary["model_sha256"]
    columns = ["round", "call_round", "base_version", "client", "outcome", "reason"]
    first, second = (
        done.ledger.contributions[columns].astype(object).where(lambda f: f.notna(), None)
        for done in (contained, processes)
    )
    assert (first["round"] > first["call_round"]).any()
    pd.testing.assert_frame_equal(first, second)


def test_a_device_that_is_killed_comes_back_under_its_identity(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    victim = f"{project_of(folder)}-dev-0001"
    kill = on_round(20, lambda: docker("kill", victim))
    calm = run(plain(300), out=tmp_path / "calm")
    done = run(plain(300), out=folder, backend="docker", show=kill)
    deaths = [(e["process"], e["status"]) for e in done.ledger.events("died")]
    assert deaths == [("dev-0001", -9)]
    assert done.ledger.clients.set_index("client").loc["dev-0001", "sessions"] == 2
    if done.summary["fingerprint"] == calm.summary["fingerprint"]:
        assert done.summary["model_sha256"] == calm.summary["model_sha256"]


def test_a_server_that_is_killed_goes_on_where_its_ledger_ends(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    kill = on_round(20, lambda: docker("kill", f"{project_of(folder)}-server"))
    done = run(plain(300), out=folder, backend="docker", show=kill)
    assert [e["process"] for e in done.ledger.events("died")] == ["server"]
    assert list(done.ledger.rounds["round"]) == list(range(1, 301))


def test_a_gateway_that_is_killed_comes_back_where_it_was(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    kill = on_round(20, lambda: docker("kill", f"{project_of(folder)}-gateway-dev"))
    slots = {"slots": 1, "overflow": "subset"}
    done = run(plain(100, shared_link=slots), out=folder, backend="docker", show=kill)
    assert [e["process"] for e in done.ledger.events("died")] == ["gateway-dev"]
    assert list(done.ledger.rounds["round"]) == list(range(1, 101))
    assert set(done.ledger.rounds["folded"]) == {1}


def test_packs_that_share_a_container_come_back_together(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    victim = f"{project_of(folder)}-dev-0000-to-dev-0001"
    kill = on_round(20, lambda: docker("kill", victim))
    planned = plain(100, count=4, devices_per_container=2)
    done = run(planned, out=folder, backend="docker", show=kill)
    assert [e["process"] for e in done.ledger.events("restarted")] == ["dev-0000"]
    assert set(done.ledger.rounds["folded"]) == {4}


@pytest.mark.parametrize("name", ["server", "evaluation", "gateway-dev", "dev-0001"])
def test_a_container_that_is_killed_while_it_starts_is_started_again(
    tmp_path: Path, name: str
) -> None:
    folder, kills = tmp_path / "run", 2

    def reap() -> None:
        """Kill the container as soon as it runs, until it was killed so often."""
        client = connect()
        labels = [f"{NAME_LABEL}={name}", f"{FOLDER_LABEL}={folder}"]
        filters = {"label": labels, "event": "start"}
        for _, _ in zip(range(kills), client.events(decode=True, filters=filters), strict=False):
            client.containers.get(f"{project_of(folder)}-{name}").kill()
        client.close()

    reaper = threading.Thread(target=reap, daemon=True)
    reaper.start()
    done = run(plain(30), out=folder, backend="docker")
    reaper.join()
    deaths = [(e["process"], e["status"]) for e in done.ledger.events("died")]
    assert deaths == [(name, -9)] * kills
    assert list(done.ledger.rounds["round"]) == list(range(1, 31))


@pytest.mark.parametrize("whose", ["dev-0000", "gateway-dev"])
def test_whose_network_goes_and_comes_back_goes_on(tmp_path: Path, whose: str) -> None:
    folder = tmp_path / "run"
    project = project_of(folder)
    network, victim = f"{project}_group-dev", f"{project}-{whose}"
    gone: list[str] = []
    rounds = 1000  # many, because Docker may take its time while rounds go on

    def show(event: dict[str, Any]) -> None:
        if event["event"] == "round_committed" and event["round"] == 20:
            docker("network", "disconnect", network, victim)
        if event["event"] == "left" and event["client"] == "dev-0000" and not gone:
            gone.append(event["why"])
            docker("network", "connect", "--alias", whose, network, victim)

    done = run(plain(rounds), out=folder, backend="docker", show=show)
    assert gone, "the server found out that it was away"
    assert list(done.ledger.rounds["round"]) == list(range(1, rounds + 1))
    assert set(done.ledger.rounds["folded"]) == {2}


def test_links_of_containers_are_what_was_asked_for() -> None:
    planned = plain(1, link={"up": "2 Mbit/s", "down": "8 Mbit/s", "rtt": "30 ms"})
    wide = Tolerances(rate=0.4, rtt=0.4)  # a busy machine adds milliseconds
    found = verify(planned, seconds=1.0, tolerances=wide, backend="docker")
    assert found.ok, found.outside
    assert {row.quantity for row in found.rows if row.ok} >= {"rate up", "rate down", "rtt"}


def test_what_is_missing_is_said_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"

    def refused(planned: Scenario, sentence: str) -> None:
        with pytest.raises(ConfigError, match=sentence):
            run(planned, out=folder, backend="docker")
        assert not folder.exists()

    launch = {"client_image": "nobody/has-this:1"}
    refused(scenario(launch=launch), "there is no image nobody/has-this:1; `make images`")
    task = {"name": "mnist", "data": {"directory": str(tmp_path / "nowhere")}}
    refused(scenario(task=task), "nowhere does not exist")
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    refused(scenario(), "no Docker daemon answers")
    monkeypatch.undo()


def test_own_data_and_local_entries_give_the_same_in_containers(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    own = validate(Scenario, own_personal(tmp_path / "files"), "own")
    contained = run(own, out=tmp_path / "contained", backend="docker")
    processes = run(own, out=tmp_path / "processes")
    for done in (contained, processes):
        assert done.status == "completed"
        assert done.ledger.device_evaluations["client"].nunique() == 3
    found, expected = parts_of(contained.folder), parts_of(processes.folder)
    assert found.keys() == expected.keys() == {"model", "near-0000", "near-0001", "far-0000"}
    assert all(found.values())
    if contained.summary["fingerprint"] == processes.summary["fingerprint"]:
        assert found == expected
