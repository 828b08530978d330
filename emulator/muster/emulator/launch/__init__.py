"""Backends: how the server and the devices are brought to life."""

from typing import Final

COMPOSE: Final = "docker-compose.yml"
"""The compose file in the run folder of a fleet that `muster up` started."""
