"""What Prometheus and Grafana get to show the metrics of a run."""

import json
import os
import re
import socket
import stat
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml

from muster.common.config import validate
from muster.common.credentials import Callers, Credentials, GivenCredentials, read_credentials
from muster.common.errors import ConfigError
from muster.common.testing import ManualClock
from muster.emulator.credentials.authority import Authority
from muster.emulator.credentials.issuing import Certifier, Issuer
from muster.emulator.launch import doctor
from muster.emulator.launch.docker.compose import Project, compose_text
from muster.emulator.launch.docker.compose_project import fleet
from muster.emulator.launch.docker.services import Service, Site
from muster.emulator.launch.process_configs import ProcessConfigs
from muster.emulator.scenario.scenario import Scenario
from muster.server.metrics.measures import MEASURES, Kind

NOW_S = 1_700_000_000.0
FOLDER = files("muster.emulator.monitoring")
PACKS = {"g": {"g-0": ["g-0"]}}
OF_THE_PROCESS = {
    "process_resident_memory_bytes",
    "process_cpu_seconds_total",
    "process_open_fds",
    "process_max_fds",
}
"""Metrics of the library that the dashboard shows."""


def scenario(**server: Any) -> Scenario:
    values = {
        "name": "watched",
        "task": {"name": "linear"},
        "server": {"rounds": 1, **server},
        "groups": [{"name": "g", "count": 1}],
    }
    return validate(Scenario, values, "test")


def configs_of(folder: Path, **server: Any) -> ProcessConfigs:
    for part in ("setup", "devices"):
        (folder / part).mkdir(parents=True)
    return ProcessConfigs(scenario(**server), folder)


def certifier() -> Certifier:
    return Certifier(Authority.create("x", NOW_S, 1e7), ManualClock(NOW_S))


# --- Prometheus ----------------------------------------------------------------------------------


def test_prometheus_reads_the_port_of_the_scenario_with_the_token_of_the_start(
    tmp_path: Path,
) -> None:
    configs = configs_of(tmp_path, metrics_port=9464)
    configs.issue_credentials(None)
    (job,) = yaml.safe_load((tmp_path / "setup/prometheus.yml").read_text())["scrape_configs"]
    (static,) = job["static_configs"]
    assert static == {"targets": ["127.0.0.1:9464"], "labels": {"scenario": "watched"}}
    assert "scheme" not in job
    token = tmp_path / "setup" / job["authorization"]["credentials_file"]
    server = read_credentials(tmp_path / "setup/secrets/server/credentials.json")
    shown = bytes.fromhex(token.read_text())
    assert Callers(GivenCredentials(server)).recognise(shown).name == "metrics"


def test_prometheus_reads_the_address_at_which_the_server_listens(tmp_path: Path) -> None:
    configs = configs_of(tmp_path, metrics_port=9464)
    configs.issue_credentials(certifier(), "10.0.0.7")
    (job,) = yaml.safe_load((tmp_path / "setup/prometheus.yml").read_text())["scrape_configs"]
    assert job["static_configs"][0]["targets"] == ["10.0.0.7:9464"]


def test_with_tls_prometheus_gets_a_certificate_and_the_name_of_the_server(tmp_path: Path) -> None:
    configs = configs_of(tmp_path, metrics_port=9464)
    configs.issue_credentials(certifier())
    (job,) = yaml.safe_load((tmp_path / "setup/prometheus.yml").read_text())["scrape_configs"]
    assert job["scheme"] == "https"
    tls = job["tls_config"]
    assert tls.pop("server_name") == f"server.{(tmp_path / 'setup/run').read_text()}.muster"
    kinds = {"ca_file": "CERTIFICATE", "cert_file": "CERTIFICATE", "key_file": "PRIVATE KEY"}
    assert tls.keys() == kinds.keys()
    for key, kind in kinds.items():
        secret = tmp_path / "setup" / tls[key]
        assert secret.read_text().startswith(f"-----BEGIN {kind}-----")
        assert stat.S_IMODE(secret.stat().st_mode) == 0o400


def test_a_renewal_gives_prometheus_a_new_certificate_and_the_old_token(tmp_path: Path) -> None:
    issuer = Issuer(tmp_path, "run", certifier())
    issuer.issue(PACKS, metrics=True)
    names = "token", "authority.pem", "certificate.pem", "key.pem"
    before = {name: (tmp_path / "metrics" / name).read_text() for name in names}
    issuer.renew()
    after = {name: (tmp_path / "metrics" / name).read_text() for name in names}
    assert {name for name in names if before[name] == after[name]} == {"token", "authority.pem"}


def test_without_metrics_prometheus_has_no_credentials(tmp_path: Path) -> None:
    configs = configs_of(tmp_path)
    configs.issue_credentials(None)
    assert not (tmp_path / "setup/prometheus.yml").exists()
    assert not (tmp_path / "setup/secrets/metrics").exists()
    server: Credentials = read_credentials(tmp_path / "setup/secrets/server/credentials.json")
    assert [caller.name for caller in server.callers] == ["operator", "device/g-0000"]


# --- what is refused -----------------------------------------------------------------------------


def test_a_run_without_the_library_is_refused_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=re.escape("install -e '.[metrics]'")):
        doctor.require_metrics(scenario(metrics_port=9464))
    doctor.require_metrics(scenario())
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(ConfigError, match="metrics need the package"):
        doctor.require(scenario(metrics_port=port))


def test_a_port_of_metrics_in_use_is_refused() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"server.metrics_port: {port} on 127.0.0.1 cannot"):
            doctor.require(scenario(metrics_port=port))


def test_two_ports_of_the_server_with_one_number_contradict_each_other() -> None:
    with pytest.raises(ConfigError, match="9464 is server"):
        scenario(port=9464, metrics_port=9464)


# --- the compose file ----------------------------------------------------------------------------


def composed(folder: Path, **server: Any) -> tuple[list[Service], dict[str, Any]]:
    configs = configs_of(folder, **server)
    site, prepared = Site(configs.scenario, folder), {"examples": [1], "schema": []}
    ports = iter(range(40001, 50000))
    services = fleet(configs, site, prepared, lambda: next(ports))
    made = Project("muster-1", "x", folder, "x", (1000, 100), os.cpu_count() or 1, site.networks())
    return services, yaml.safe_load(compose_text(made, services))["services"]


def test_prometheus_and_grafana_are_in_a_profile_and_see_only_their_own_files(
    tmp_path: Path,
) -> None:
    services, found = composed(tmp_path, metrics_port=9464)
    by_profile = {name: part.get("profiles") for name, part in found.items()}
    assert {name for name, of in by_profile.items() if of} == {"prometheus", "grafana"}
    assert by_profile["prometheus"] == by_profile["grafana"] == ["metrics"]
    for service in services:
        if service.profile:
            assert not any(mount.writable for mount in service.mounts)
            assert found[service.name]["networks"] == ["backbone"]
            assert found[service.name]["read_only"] is True
            for mount in service.mounts:
                assert Path(mount.source).exists() or mount.source.endswith("secrets/metrics")


def test_the_metrics_are_published_on_this_machine_and_prometheus_reads_them_inside(
    tmp_path: Path,
) -> None:
    services, found = composed(tmp_path, metrics_port=9464)
    assert "127.0.0.1:9464:7300" in found["server"]["ports"]
    assert json.loads((tmp_path / "setup/server.json").read_text())["metrics_port"] == 7300
    mounts = {
        mount.target: mount.source
        for service in services
        if service.name == "prometheus"
        for mount in service.mounts
    }
    config = yaml.safe_load(Path(mounts["/etc/prometheus/prometheus.yml"]).read_text())
    (job,) = config["scrape_configs"]
    assert job["static_configs"][0]["targets"] == ["server:7300"]
    token = Path("/etc/prometheus") / job["authorization"]["credentials_file"]
    assert mounts[str(token.parent)] == str(tmp_path / "setup/secrets/metrics")


def test_a_fleet_without_metrics_has_neither(tmp_path: Path) -> None:
    _, found = composed(tmp_path)
    assert not found.keys() & {"prometheus", "grafana"}
    assert len(found["server"]["ports"]) == 1
    assert "metrics_port" not in json.loads((tmp_path / "setup/server.json").read_text())


def test_the_containers_of_a_fleet_have_the_same_settings_with_metrics(tmp_path: Path) -> None:
    _, without = composed(tmp_path / "a")
    _, found = composed(tmp_path / "b", metrics_port=9464)
    for name, part in without.items():
        same = part.keys() - {"ports", "volumes", "labels"}
        assert {key: found[name][key] for key in same} == {key: part[key] for key in same}


# --- the dashboard -------------------------------------------------------------------------------


def queries() -> Iterator[str]:
    dashboard = json.loads(FOLDER.joinpath("dashboard.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            yield target["expr"]


def examples() -> Iterator[str]:
    page = (Path(__file__).parents[3] / "docs/metrics.md").read_text()
    _, _, part = page.partition("## Examples")
    yield from re.findall(r"`([^`]+)` \|$", part, re.MULTILINE)


SERIES = {
    f"{measure.name}{suffix}": measure
    for measure in MEASURES
    for suffix in (("_bucket", "_sum", "_count") if measure.kind is Kind.HISTOGRAM else ("",))
}


@pytest.mark.parametrize("query", [*queries(), *examples()])
def test_every_query_asks_for_metrics_and_labels_that_are_exported(query: str) -> None:
    named = set(re.findall(r"\b(?:muster|process)_\w+", query))
    assert named
    assert named <= SERIES.keys() | OF_THE_PROCESS
    grouped = {
        label for labels in re.findall(r"by \(([^)]*)\)", query) for label in labels.split(", ")
    }
    measures = [SERIES[name] for name in named if name in SERIES]
    for measure in measures:
        extra = {"le"} if measure.kind is Kind.HISTOGRAM else set()
        assert grouped <= {*measure.labels, *extra}
    if "rate(" in query or "increase(" in query:
        assert all(measure.kind is not Kind.GAUGE for measure in measures)


def test_the_dashboard_finds_the_data_source_that_grafana_is_given() -> None:
    (source,) = yaml.safe_load(FOLDER.joinpath("datasources.yml").read_text())["datasources"]
    dashboard = json.loads(FOLDER.joinpath("dashboard.json").read_text())
    shown = [each for panel in dashboard["panels"] for each in (panel, *panel["targets"])]
    uids = {each["datasource"]["uid"] for each in shown}
    assert uids == {source["uid"]}
    assert source["url"] == "http://prometheus:9090"


def test_the_panels_of_the_dashboard_do_not_overlap() -> None:
    dashboard = json.loads(FOLDER.joinpath("dashboard.json").read_text())
    taken = [
        (x, y)
        for place in (panel["gridPos"] for panel in dashboard["panels"])
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(taken) == len(set(taken))
    assert max(x for x, _ in taken) < 24
