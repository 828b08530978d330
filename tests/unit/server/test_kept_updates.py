"""Kept updates: files of rounds that hold the bodies as they arrived."""

from pathlib import Path

import pytest
from safetensors import safe_open

from muster.common.compression import Whole
from muster.common.config import validate
from muster.common.errors import ConfigError
from muster.common.exchange import Key, Update
from muster.emulator.scenario.scenario import Scenario
from muster.server.account.traffic import TransferCost
from muster.server.aggregators import Contribution
from muster.server.updates.kept import KeptUpdates, kept_name
from muster.server.updates.round_updates import PendingUpdate
from muster.server.updates.uploads import InlineBody, UpdateFormat, UploadFiles
from muster.wire.bodies import checksum

FORMAT = UpdateFormat(Whole(kind="none"), 2)
LOW, HIGH = b"\x00\x00\x80\x3f\x00\x00\x00\x40", b"\x00\x00\x40\x40\x00\x00\x80\x40"


def update(client: str, body: bytes, folder: Path | None = None) -> PendingUpdate:
    """An update whose body lies in memory, or in a file of `folder`."""
    sent = Update(Key(client, 3, 1), 5, checksum(body), len(body), 0.0, 0.0, 0.0)
    held: InlineBody | object = InlineBody(body, FORMAT)
    if folder is not None:
        upload = UploadFiles(folder).open(sent, FORMAT, 0)
        upload.write(body)
        held = upload
    return PendingUpdate(sent, Contribution(client, "g", 5, 0), held, TransferCost())  # type: ignore[arg-type]


def test_a_round_has_a_file_with_every_body_and_its_checksum(tmp_path: Path) -> None:
    kept = KeptUpdates(tmp_path / "updates")
    kept.load(0)
    kept.keep(3, [update("a", LOW), update("b", HIGH, tmp_path)])
    with safe_open(tmp_path / "updates" / kept_name(3), "numpy") as file:
        assert file.get_tensor("a").tobytes() == LOW
        assert file.get_tensor("b").tobytes() == HIGH
        assert file.metadata() == {"a": checksum(LOW).hex(), "b": checksum(HIGH).hex()}


def test_updates_of_rounds_that_were_never_committed_are_removed(tmp_path: Path) -> None:
    kept = KeptUpdates(tmp_path / "updates")
    kept.load(0)
    for round in (1, 2, 3):
        kept.keep(round, [update("a", LOW)])
    (tmp_path / "updates/000004.safetensors.tmp").touch()
    kept.load(2)
    assert sorted(path.name for path in (tmp_path / "updates").iterdir()) == [
        "000001.safetensors",
        "000002.safetensors",
    ]


def test_an_empty_round_keeps_nothing(tmp_path: Path) -> None:
    kept = KeptUpdates(tmp_path / "updates")
    kept.load(0)
    kept.keep(1, [])
    kept.keep(2, [update("a", LOW)])
    kept.discard(2)
    kept.discard(3)
    assert list((tmp_path / "updates").iterdir()) == []


def test_privacy_of_the_server_is_refused() -> None:
    values = {
        "name": "kept",
        "task": {"name": "digits", "model": "mlp"},
        "server": {
            "rounds": 1,
            "keep_updates": True,
            "privacy": {"clip": 1.0, "noise": 1.0},
        },
        "groups": [{"name": "g", "count": 2}],
    }
    with pytest.raises(ConfigError) as refusal:
        validate(Scenario, values, "test")
    text = str(refusal.value)
    assert "server.keep_updates: the server would write down every update as it arrived" in text
