"""Draws the credentials of a run's programs, and writes the file of each.

They are drawn anew for every start of a run. A program finds its own in `setup/secrets/NAME/`
below the run folder. They are removed when the run ends, so a folder that is passed on has none.
"""

import logging
import secrets
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from muster.common.clock import Clock
from muster.common.credentials import (
    EVALUATION,
    METRICS,
    OPERATOR,
    SECRETS,
    SERVER,
    SUPERVISOR,
    TOKEN_BYTES,
    Caller,
    Credentials,
    TlsIdentity,
    credentials_path,
    device_name,
    gateway_identity,
    write_credentials,
)
from muster.common.errors import ConfigError, reason_of
from muster.emulator.monitoring.scraper_files import write_scraper_files
from muster.emulator.scenario.settings import Launch

if TYPE_CHECKING:  # the library takes a while to import, and most runs do without
    from muster.emulator.credentials.authority import Authority

log = logging.getLogger("muster.emulator")

LIFETIME_S: Final = 86_400.0
"""Seconds for which the certificates of a run are valid. They are renewed after half of it."""

UNATTENDED_LIFETIME_S: Final = 90 * 86_400.0
"""Likewise for a fleet of `muster up`, beside which nobody stays who could renew them."""

_AUTHORITY_S: Final = 10 * 365 * 86_400.0
"""Seconds for which the authority of a run is valid. Its key is gone when the command ends."""

_AGAIN_S: Final = 60.0
"""Seconds after which certificates that could not be renewed are tried again."""

Packs = Mapping[str, Mapping[str, Sequence[str]]]
"""The clients of every pack by its name, for each group."""


@dataclass(frozen=True)
class Certifier:
    """Gives the programs of a run their certificates.

    Attributes:
        lifetime_s: seconds for which certificates are valid.
    """

    authority: "Authority"
    clock: Clock
    lifetime_s: float = LIFETIME_S

    def certify(self, run: str, name: str) -> TlsIdentity:
        """A new certificate for a program of a run."""
        return self.authority.certify(run, name, self.clock.now(), self.lifetime_s)


def certifier_of(
    launch: Launch, required: bool, clock: Clock, lifetime_s: float = LIFETIME_S
) -> Certifier | None:
    """What certifies the programs of a run; None: there is no TLS.

    Args:
        required: whether there is TLS also if the scenario does not ask for it.
        lifetime_s: seconds for which certificates are valid.

    Raises:
        ConfigError: the scenario's own authority cannot be used.
    """
    if not (launch.tls or required):
        if launch.authority is not None:
            raise ConfigError(
                "launch.authority: without TLS, a run has no certificates that an authority could "
                "sign; set launch.tls = true, or leave launch.authority out"
            )
        return None
    from muster.emulator.credentials.authority import Authority

    if launch.authority is not None:
        return Certifier(Authority.load(Path(launch.authority), clock.now()), clock, lifetime_s)
    return Certifier(Authority.create("muster", clock.now(), _AUTHORITY_S), clock, lifetime_s)


class Issuer:
    """Issues the credentials of one start of a run.

    Args:
        folder: the folder of all credentials, `setup/secrets` of the run folder.
        run: the identity of the run.
        certifier: None: there is no TLS.
    """

    def __init__(self, folder: Path, run: str, certifier: Certifier | None) -> None:
        self._folder = folder
        self._run = run
        self._certifier = certifier
        self._issued: list[Credentials] = []

    def issue(self, packs: Packs, metrics: bool = False) -> None:
        """Write new credentials for every program; those of an earlier start are removed.

        Args:
            metrics: whether the server has metrics that somebody may read.
        """
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True, mode=0o700)
        self._issued.clear()
        devices = {
            group: [
                self._write(device_name(pack)).as_caller(clients)
                for pack, clients in of_group.items()
            ]
            for group, of_group in packs.items()
        }
        supervisor = self._write(SUPERVISOR).as_caller()
        for group, of_group in devices.items():
            self._write(gateway_identity(group), [supervisor, *of_group])
        known = [self._write(OPERATOR)] + ([self._write(METRICS)] if metrics else [])
        callers = [credentials.as_caller() for credentials in known]
        self._write(SERVER, [*callers, *(pack for group in devices.values() for pack in group)])
        self._write(EVALUATION)

    def _write(self, name: str, callers: Sequence[Caller] = ()) -> Credentials:
        credentials = drawn_credentials(self._run, name, self._certifier, callers)
        self._store(credentials)
        self._issued.append(credentials)
        return credentials

    def _store(self, credentials: Credentials) -> None:
        path = credentials_path(self._folder, credentials.name)
        if credentials.name == METRICS:  # Prometheus reads no files of muster's own
            write_scraper_files(path.parent, credentials)
        else:
            write_credentials(path, credentials)

    def renew(self) -> None:
        """Give every program a new key and certificate. Tokens stay as they are. Programs read
        their files again when they connect or are connected to, and need no restart.

        Raises:
            ConfigError: the authority has expired.
            OSError: a file cannot be written.
        """
        assert self._certifier is not None
        for credentials in self._issued:
            tls = self._certifier.certify(self._run, credentials.name)
            self._store(credentials.model_copy(update={"tls": tls}))

    async def keep_renewing(self) -> None:
        """Renew certificates whenever half of their lifetime is over. If a file cannot be written,
        for example because the disk is full, try again a minute later. Return if there is no TLS,
        or when the authority has expired."""
        if self._certifier is None:
            return
        clock, every_s = self._certifier.clock, self._certifier.lifetime_s / 2
        expires_s = self._certifier.authority.expires_at.timestamp()
        wait_s = every_s
        while True:
            wait_s = min(wait_s, expires_s - clock.now())
            await clock.sleep_until(clock.monotonic() + wait_s)
            try:
                self.renew()
                wait_s = every_s
            except OSError as error:
                wait_s = _AGAIN_S
                log.warning("certificates are not renewed: %s; trying again", reason_of(error))
            except ConfigError as error:
                log.warning("certificates are not renewed: %s", error)
                return


def drawn_credentials(
    run: str, name: str, certifier: Certifier | None, callers: Sequence[Caller] = ()
) -> Credentials:
    """New credentials for a program of a run.

    Args:
        certifier: None: there is no TLS.
        callers: the programs that may call it.
    """
    token = secrets.token_hex(TOKEN_BYTES)
    tls = None if certifier is None else certifier.certify(run, name)
    return Credentials(run=run, name=name, token=token, tls=tls, callers=list(callers))


def remove_credentials(folder: Path) -> None:
    """Remove the credentials of a run folder."""
    shutil.rmtree(folder / SECRETS, ignore_errors=True)
