"""What the actor of a node says if its program cannot be started."""

from pathlib import Path

import pytest


async def test_a_program_that_cannot_be_started_is_an_error(tmp_path: Path) -> None:
    from muster.emulator.launch.ray.node_actor import NodeActor

    with pytest.raises(FileNotFoundError):
        await NodeActor().start("{}", {}, str(tmp_path / "missing" / "node.log"))
