"""Backends: how the programs of a run are started."""

from typing import Final

COMPOSE: Final = "docker-compose.yml"
"""The compose file in the run folder of a fleet that `muster up` started."""
