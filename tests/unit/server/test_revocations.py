"""The file of revoked credentials."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.common.errors import ConfigError
from muster.common.testing import made_credentials
from muster.server.rpc.revocations import Revocations

A = made_credentials("device/a", byte=1).as_caller("a")
B = made_credentials("device/b", byte=2).as_caller("b")


def test_what_was_revoked_stays_so_for_whoever_reads_the_file_next(tmp_path: Path) -> None:
    path = tmp_path / "revoked.json"
    Revocations(path).add(A)
    again = Revocations(path)
    assert A in again
    assert B not in again
    again.add(B)
    assert A in Revocations(path)
    assert B in Revocations(path)


def test_a_new_token_of_the_same_name_is_not_revoked(tmp_path: Path) -> None:
    path = tmp_path / "revoked.json"
    Revocations(path).add(A)
    assert made_credentials("device/a", byte=3).as_caller("a") not in Revocations(path)


@pytest.mark.parametrize("content", ["", "{", "7", "[7]", '["a"]', '[["a", "b", "c"]]'])
def test_a_damaged_file_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "revoked.json"
    path.write_text(content)
    with pytest.raises(ConfigError, match="expected the revoked credentials of the run"):
        Revocations(path)


def test_a_revocation_that_cannot_be_written_holds_and_says_so(tmp_path: Path) -> None:
    revocations = Revocations(tmp_path / "missing" / "revoked.json")
    with pytest.raises(ConfigError, match="device/a is revoked, but a restarted server would not"):
        revocations.add(A)
    assert A in revocations
