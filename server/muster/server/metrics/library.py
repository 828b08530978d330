"""Checks for the library of metrics, which is an extra of muster."""

import importlib.util

from muster.common.errors import ConfigError
from muster.common.installation import install_command


def require_library() -> None:
    """Check that the library of metrics is installed.

    Raises:
        ConfigError: it is not.
    """
    if importlib.util.find_spec("prometheus_client") is None:
        raise ConfigError(
            "server.metrics_port: metrics need the package prometheus-client, which is not "
            f"installed; {install_command('metrics')}, or leave the key out"
        )
