from pathlib import Path
from typing import Any

import pytest
from tests.integration.faults.playing import Play, Played, play_into


@pytest.fixture
def play(tmp_path: Path) -> Play:
    number = iter(range(100))

    def played(*faults: dict[str, Any], **more: Any) -> Played:
        return play_into(tmp_path / str(next(number)), *faults, **more)

    return played
