"""What happens to a run's credentials if a disk is full or an authority expires."""

import asyncio
import errno
from pathlib import Path

import pytest

from muster.common.config import validate
from muster.common.credentials import (
    SECRETS,
    Credentials,
    credentials_path,
    read_credentials,
    write_credentials,
)
from muster.common.errors import RunFailed
from muster.common.testing import ManualClock
from muster.emulator import run
from muster.emulator.credentials.authority import Authority
from muster.emulator.credentials.issuing import Certifier, Issuer
from muster.emulator.scenario.scenario import Scenario

DAY_S = 86_400.0
NOW_S = 1_700_000_000.0


async def renewed_at(
    tmp_path: Path,
    authority_s: float,
    monkeypatch: pytest.MonkeyPatch,
    fails: int = 0,
    hours: int = 47,
) -> list[float]:
    """Days since the start at which certificates were renewed, looking every hour.

    Args:
        authority_s: seconds for which the authority is valid.
        fails: how many times no file can be written.
    """
    clock = ManualClock(NOW_S)
    certifier = Certifier(Authority.create("x", NOW_S, authority_s), clock, lifetime_s=DAY_S)
    issuer = Issuer(tmp_path, "run", certifier)
    issuer.issue({"g": {"g-0": ["g-0"]}})
    path, days, left = credentials_path(tmp_path, "device/g-0"), [], fails

    def write(path: Path, credentials: Credentials) -> None:
        nonlocal left
        if left:
            left -= 1
            raise OSError(errno.ENOSPC, "No space left on device")
        write_credentials(path, credentials)

    monkeypatch.setattr("muster.emulator.credentials.issuing.write_credentials", write)
    renewing = asyncio.create_task(issuer.keep_renewing())
    before = read_credentials(path)
    for hour in range(1, hours + 1):
        for _ in range(60):
            await asyncio.sleep(0)
            clock.advance(60.0)
            await asyncio.sleep(0)
        if (now := read_credentials(path)) != before:
            days.append(hour / 24)
            before = now
    renewing.cancel()
    await asyncio.gather(renewing, return_exceptions=True)
    return days


async def test_a_full_disk_delays_the_renewal_of_certificates_and_does_not_end_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert await renewed_at(tmp_path, 30 * DAY_S, monkeypatch) == [12 / 24, 24 / 24, 36 / 24]
    assert caplog.messages == []
    late = await renewed_at(tmp_path, 30 * DAY_S, monkeypatch, fails=90)
    assert late == [14 / 24, 26 / 24, 38 / 24]
    assert len(caplog.messages) == 90
    assert "No space left on device; trying again" in caplog.messages[0]


async def test_the_renewal_ends_with_the_authority_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert await renewed_at(tmp_path, 0.8 * DAY_S, monkeypatch) == [12 / 24]
    (said,) = caplog.messages
    caplog.clear()
    assert await renewed_at(tmp_path, 0.3 * DAY_S, monkeypatch, hours=7) == []
    assert caplog.messages == []
    assert await renewed_at(tmp_path, 0.3 * DAY_S, monkeypatch, hours=8) == []
    assert len(caplog.messages) == 1
    assert said.startswith("certificates are not renewed: the authority has expired at ")


def test_a_start_that_cannot_write_all_credentials_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {
        "name": "x",
        "task": {"name": "linear"},
        "server": {"rounds": 1},
        "groups": [{"name": "a", "count": 3}],
    }
    written: list[Path] = []

    def write(path: Path, credentials: Credentials) -> None:
        if len(written) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        write_credentials(path, credentials)
        written.append(path)

    monkeypatch.setattr("muster.emulator.credentials.issuing.write_credentials", write)
    with pytest.raises(RunFailed, match="No space left on device\nResume the run with"):
        run(validate(Scenario, values, "test"), out=tmp_path / "run")
    assert len(written) == 2
    assert not (tmp_path / "run" / SECRETS).exists()
