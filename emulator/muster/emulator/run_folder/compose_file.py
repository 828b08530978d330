"""The compose file in the run folder of a fleet that `muster up` started."""

from pathlib import Path
from typing import Final

COMPOSE: Final = "docker-compose.yml"
"""The compose file in the run folder of a fleet that `muster up` started."""

SWARM: Final = "x-swarm"
"""The section that marks the compose file of a swarm."""


def is_stack(folder: Path) -> bool:
    """Whether the fleet of a run folder runs in a swarm, beside which no supervisor stays."""
    file = folder / COMPOSE
    if not file.is_file():
        return False
    with file.open() as lines:
        return any(line.startswith(SWARM) for line in lines)
