"""Opens the metrics of a server, if its scenario asks for them."""

import importlib.util
from collections.abc import Iterable
from typing import TYPE_CHECKING

from muster.common.clock import Clock
from muster.common.credentials import CredentialsSource
from muster.common.errors import ConfigError
from muster.common.installation import install_command
from muster.server.fleet.devices import EnrolledDevice
from muster.server.metrics.port import MetricsPort
from muster.server.settings.process import ServerProcess
from muster.wire.connections.ports import LinePort

if TYPE_CHECKING:  # needs the library, which is an extra
    from muster.server.metrics.run_metrics import RunMetrics


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


def metrics_of(
    config: ServerProcess, devices: Iterable[EnrolledDevice], clock: Clock
) -> "RunMetrics | None":
    """The metrics of a server; None if its scenario does not ask for them.

    Raises:
        ConfigError: their library is not installed.
    """
    if config.metrics_port is None:
        return None
    require_library()
    from muster.server.metrics.run_metrics import RunMetrics

    return RunMetrics(devices, clock)


async def open_port(
    config: ServerProcess, metrics: "RunMetrics", source: CredentialsSource, clock: Clock
) -> LinePort:
    """Open the port at which the metrics are read.

    Raises:
        ConfigError: the port is taken, or may not be opened without TLS.
    """
    assert config.metrics_port is not None
    port = MetricsPort(metrics.render, source)
    try:
        return await port.listen(config.host, config.metrics_port, clock)
    except OSError as error:
        raise ConfigError(
            f"server.metrics_port: {config.metrics_port} on {config.host} cannot be used "
            f"({error.strerror}); choose another port"
        ) from None
