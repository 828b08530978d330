"""The metrics of a real server, read while the run goes on, beside the run's journal and ledger."""

from __future__ import annotations

import socket
import sqlite3
import urllib.request
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families

from muster.chaos.run_processes import kill_process, run_processes
from muster.emulator import run
from muster.emulator.run_folder.control import stop

if TYPE_CHECKING:
    from pathlib import Path

    from tests.system.conftest import MakeScenario

pytestmark = pytest.mark.usefixtures("nothing_left")

ENDLESS = 1_000_000


@pytest.fixture
def port() -> int:
    """A free port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def scrape(folder: Path, port: int) -> dict[str, float]:
    """The values of the metrics, by name and labels."""
    token = (folder / "setup/secrets/metrics/token").read_text()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/metrics", headers={"Authorization": f"Bearer {token}"}
    )
    with urllib.request.urlopen(request, timeout=30) as reply:
        text = reply.read().decode()
    return {
        sample.name + "".join(f"[{value}]" for value in sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


COLUMNS = {
    "muster_rounds_total[aggregated]": "1",
    "muster_updates_folded_total": "folded",
    "muster_traffic_bytes_total[up]": "bytes_up",
    "muster_traffic_bytes_total[down]": "bytes_down",
    "muster_round_seconds_sum": "seconds",
}
"""The metrics that are sums over rounds, and what they sum."""


def newest_round(folder: Path) -> int:
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as ledger:
        return int(ledger.execute("SELECT MAX(round) FROM rounds").fetchone()[0])


def sums(folder: Path, after: int, last: int) -> dict[str, float]:
    """The sums of COLUMNS over the rounds after one and up to another."""
    sums = ", ".join(f"COALESCE(SUM({column}), 0)" for column in COLUMNS.values())
    query = f"SELECT {sums} FROM rounds WHERE round > ? AND round <= ?"
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as ledger:
        return dict(zip(COLUMNS, ledger.execute(query, (after, last)).fetchone(), strict=True))


class Scraped(NamedTuple):
    """What the metrics were while the run went on, between two moments.

    Attributes:
        least, most: the newest committed round before and after.
    """

    values: dict[str, float]
    least: int
    most: int


def test_the_metrics_say_what_the_ledger_says_also_of_a_server_that_was_started_again(
    scenario: MakeScenario, tmp_path: Path, port: int
) -> None:
    folder, scraped, started = tmp_path / "run", list[Scraped](), list[int]()
    settings = {"rounds": ENDLESS, "evaluate_every": ENDLESS, "metrics_port": port}
    planned = scenario(server=settings, launch={"restarts": 1})

    def show(event: Any) -> None:
        if event["event"] == "server_started":
            started.append(event["round"])
        elif event["event"] == "round_committed" and len(scraped) < len(started):
            found = scrape(folder, port)
            scraped.append(Scraped(found, event["round"], newest_round(folder)))
            if len(scraped) == 1:
                (server,) = (each for each in run_processes(folder) if each.part == "server")
                kill_process(server, folder)
            else:
                stop(folder)

    assert run(planned, out=folder, report=False, show=show).status == "stopped"
    assert started[0] == 0
    assert started[1] >= scraped[0].least
    for (found, least, most), before in zip(scraped, started, strict=True):
        low, high = sums(folder, before, least), sums(folder, before, most)
        for name in COLUMNS:
            assert low[name] - 1e-6 <= found[name] <= high[name] + 1e-6, name
        assert least / ENDLESS <= found["muster_progress_ratio"] <= most / ENDLESS
        assert found["muster_devices[dev]"] == found["muster_devices_present[dev]"] == 3
        assert found["muster_device_connections_total[dev]"] == 3
        assert found["process_resident_memory_bytes"] > 1 << 20


def test_metrics_do_not_change_the_model(scenario: MakeScenario, tmp_path: Path, port: int) -> None:
    server = {"rounds": 5}
    plain = run(scenario(server=server), out=tmp_path / "plain", report=False)
    watched = run(
        scenario(server={**server, "metrics_port": port}), out=tmp_path / "watched", report=False
    )
    assert plain.summary["model_sha256"] == watched.summary["model_sha256"]
    assert (tmp_path / "watched/setup/prometheus.yml").is_file()
    assert not (tmp_path / "watched/setup/secrets").exists()
