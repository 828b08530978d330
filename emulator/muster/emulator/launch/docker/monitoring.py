"""The containers of Prometheus and Grafana, which show the metrics of a fleet of `muster up`.

The compose file has them in the profile `metrics`, so they run only if somebody starts them. Their
images are not muster's.
"""

from importlib.resources import files
from pathlib import Path
from typing import Final

from muster.common.credentials import METRICS, SECRETS
from muster.common.files import write_atomic
from muster.emulator.launch.docker.container_limits import MONITORING_LIMITS
from muster.emulator.launch.docker.services import BACKBONE, METRICS_PORT, Mount, Service
from muster.emulator.launch.process_configs import ProcessConfigs

PROFILE: Final = "metrics"

PROMETHEUS_IMAGE: Final = "prom/prometheus:v3.5.0"
GRAFANA_IMAGE: Final = "grafana/grafana:12.1.0"
PROMETHEUS_PORT: Final = 9090
GRAFANA_PORT: Final = 3000

_CONFIG = "setup/prometheus-compose.yml"
_GRAFANA = "setup/grafana"
_PROVISIONING = {
    "datasources.yml": "provisioning/datasources/muster.yml",
    "dashboards.yml": "provisioning/dashboards/muster.yml",
    "dashboard.json": "dashboards/muster.json",
}
"""Where Grafana expects its files, below `/etc/grafana`."""

_GRAFANA_ENVIRONMENT = {
    "GF_AUTH_ANONYMOUS_ENABLED": "true",
    "GF_AUTH_ANONYMOUS_ORG_ROLE": "Viewer",
    "GF_AUTH_BASIC_ENABLED": "false",
    "GF_AUTH_DISABLE_LOGIN_FORM": "true",
    "GF_ANALYTICS_REPORTING_ENABLED": "false",
    "GF_ANALYTICS_CHECK_FOR_UPDATES": "false",
    "GF_ANALYTICS_CHECK_FOR_PLUGIN_UPDATES": "false",
    "GF_PATHS_PROVISIONING": "/etc/grafana/provisioning",
}
"""Everybody on the machine may look, and nobody may change anything: there is no password to
guess. Grafana asks nothing of other machines."""


def monitoring(configs: ProcessConfigs) -> list[Service]:
    """The containers that show the metrics of a fleet; none if it has no metrics. Writes their
    settings into the run folder."""
    if configs.scenario.server.metrics_port is None:
        return []
    folder = configs.folder
    config = configs.prometheus(f"server:{METRICS_PORT}", encrypted=True)
    write_atomic(folder / _CONFIG, config.encode())
    (folder / _GRAFANA).mkdir(exist_ok=True)
    for name in _PROVISIONING:
        content = files("muster.emulator.monitoring").joinpath(name).read_bytes()
        write_atomic(folder / _GRAFANA / name, content)
    return [_prometheus(folder), _grafana(folder)]


def _prometheus(folder: Path) -> Service:
    home = "/etc/prometheus"
    return Service(
        name="prometheus",
        role="monitoring",
        image=PROMETHEUS_IMAGE,
        command=[
            f"--config.file={home}/prometheus.yml",
            "--storage.tsdb.path=/prometheus",
            f"--web.listen-address=0.0.0.0:{PROMETHEUS_PORT}",
        ],
        networks=[BACKBONE],
        limits=MONITORING_LIMITS,
        mounts=[
            Mount(str(folder / _CONFIG), f"{home}/prometheus.yml"),
            Mount(str(folder / SECRETS / METRICS), f"{home}/secrets/{METRICS}"),
        ],
        ports={PROMETHEUS_PORT: PROMETHEUS_PORT},
        scratch=["/prometheus"],
        profile=PROFILE,
    )


def _grafana(folder: Path) -> Service:
    return Service(
        name="grafana",
        role="monitoring",
        image=GRAFANA_IMAGE,
        command=[],
        networks=[BACKBONE],
        limits=MONITORING_LIMITS,
        mounts=[
            Mount(str(folder / _GRAFANA / name), f"/etc/grafana/{target}")
            for name, target in _PROVISIONING.items()
        ],
        environment=_GRAFANA_ENVIRONMENT,
        ports={GRAFANA_PORT: GRAFANA_PORT},
        scratch=["/var/lib/grafana", "/var/log/grafana"],
        profile=PROFILE,
    )
