"""The configuration with which Prometheus reads the metrics of a run."""

from typing import Any, Final

from muster.common.credentials import METRICS
from muster.emulator.monitoring.scraper_files import AUTHORITY, CERTIFICATE, KEY, TOKEN
from muster.wire.connections.encryption import server_host

CONFIG: Final = "setup/prometheus.yml"
"""The configuration for a Prometheus on the machine of the run, in the run folder. The folder is
one that the server in a container does not see: what it names is read with the rights of a user."""

_EVERY_S = 5

_HEAD = """\
# How Prometheus reads the metrics of this run: prometheus --config.file=FILE
#
# The credentials that it names are drawn anew whenever the run starts; docs/metrics.md explains it.
"""


def prometheus_config(scenario: str, run: str, address: str, encrypted: bool) -> str:
    """The text of a configuration. Paths in it are relative to its own folder, `setup`.

    Args:
        scenario: the name of the scenario, which becomes a label.
        run: the identity of the run.
        address: host:port of the metrics.
        encrypted: whether the server has TLS.
    """
    secrets = f"secrets/{METRICS}"
    job: dict[str, Any] = {
        "job_name": "muster",
        "authorization": {"type": "Bearer", "credentials_file": f"{secrets}/{TOKEN}"},
        "static_configs": [{"targets": [address], "labels": {"scenario": scenario}}],
    }
    if encrypted:
        job["scheme"] = "https"
        job["tls_config"] = {
            "ca_file": f"{secrets}/{AUTHORITY}",
            "cert_file": f"{secrets}/{CERTIFICATE}",
            "key_file": f"{secrets}/{KEY}",
            "server_name": server_host(run),
        }
    config = {"global": {"scrape_interval": f"{_EVERY_S}s"}, "scrape_configs": [job]}
    import yaml

    return f"{_HEAD}\n{yaml.safe_dump(config, sort_keys=False)}"
