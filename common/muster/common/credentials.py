"""Who a program is: what it shows to the programs that it calls, and how it recognises callers.

Every program of a run has one file of credentials. Only the user of the run can read it, and it is
removed when the run ends. A device is recognised together with the other devices of its process:
they share a memory, so nothing could keep a secret of one from another.

What a caller shows is its token, followed by its name. The other side knows only the token's
SHA-256, so a list of callers is no secret. Tokens have 128 random bits, so they need no slow hash.
"""

import hashlib
import hmac
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Final, Protocol

from pydantic import Field

from muster.common.config import Section
from muster.common.errors import ConfigError, Unauthenticated
from muster.common.files import os_reason

SECRETS: Final = "setup/secrets"
"""The folder of a run folder that has the credentials of its programs while it runs."""

FILE: Final = "credentials.json"
"""The name of a program's credentials in its own folder below `SECRETS`."""

TOKEN_BYTES: Final = 16

SERVER: Final = "server"
OPERATOR: Final = "operator"
SUPERVISOR: Final = "supervisor"
EVALUATION: Final = "evaluation"
METRICS: Final = "metrics"
"""Names of the programs of which a run has one. The supervisor controls the gateways, and whoever
collects the metrics of the server (Prometheus) is `METRICS`."""

_SHOWN = 100
"""Most characters of a caller's name that a message repeats."""


def device_name(pack: str) -> str:
    """The name under which the devices of a process are known."""
    return f"device/{pack}"


def gateway_identity(group: str) -> str:
    """The name under which the gateway of a group is known."""
    return f"gateway/{group}"


def credentials_path(folder: Path | str, name: str) -> Path:
    """The file with the credentials of the program `name`, below the folder of all credentials."""
    return Path(folder) / name / FILE


class Caller(Section):
    """A program that may call, as the called program knows it."""

    name: str
    token_sha256: str
    """SHA-256 of the token, hexadecimal."""

    clients: list[str] = Field(default_factory=list)
    """The devices for which it may speak."""

    @cached_property
    def _speaks_for(self) -> frozenset[str]:
        return frozenset(self.clients)

    def may_speak_for(self, client: str) -> bool:
        """Whether the device `client` is one of its own."""
        return client in self._speaks_for


class TlsIdentity(Section):
    """A certificate with its key, and the authority whose certificates are accepted; all PEM."""

    certificate: str
    key: str = Field(repr=False)
    authority: str


class Credentials(Section):
    """The credentials of one program, as they are in its file."""

    run: str
    """The identity of the run. Certificates of other runs are refused."""

    name: str
    token: str = Field(repr=False, pattern=r"^[0-9a-f]{32}$")
    """Hexadecimal; the program shows it to those that it calls."""

    tls: TlsIdentity | None = None
    """Absent: connections are not encrypted, which is possible on the loopback address only."""

    callers: list[Caller] = Field(default_factory=list)
    """The programs that may call this one."""

    @property
    def shown(self) -> bytes:
        """What the program shows to those that it calls."""
        return bytes.fromhex(self.token) + self.name.encode()

    def as_caller(self, clients: Sequence[str] = ()) -> Caller:
        """The program as those that it calls know it.

        Args:
            clients: the devices for which it may speak.
        """
        digest = hashlib.sha256(bytes.fromhex(self.token)).hexdigest()
        return Caller(name=self.name, token_sha256=digest, clients=list(clients))


class CredentialsSource(Protocol):
    """Has the credentials of a program, which may be replaced while the program runs."""

    def current(self) -> Credentials:
        """The credentials that hold now."""
        ...


class GivenCredentials:
    """Credentials that stay as they are."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def current(self) -> Credentials:
        return self._credentials


class CredentialsFile:
    """The credentials in a file. They are read again when the file has been replaced.

    Raises:
        ConfigError: see `read_credentials`.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp = self._look()
        self._credentials = read_credentials(path)

    def current(self) -> Credentials:
        """The credentials that hold now. While the file is missing or damaged, those before it."""
        if (stamp := self._look()) != self._stamp:
            with suppress(ConfigError):
                self._credentials = read_credentials(self._path)
                self._stamp = stamp
        return self._credentials

    def _look(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns


class Callers:
    """The programs that may call this one.

    Args:
        source: the credentials of this program.
    """

    def __init__(self, source: CredentialsSource) -> None:
        self._source = source
        self._read = source.current()
        self._by_name = {caller.name: caller for caller in self._read.callers}

    def _current(self) -> Mapping[str, Caller]:
        if (current := self._source.current()) is not self._read:
            self._read = current
            self._by_name = {caller.name: caller for caller in current.callers}
        return self._by_name

    def named(self, name: str) -> Caller | None:
        """The program of this name; None if it may not call (any more)."""
        return self._current().get(name)

    def all(self) -> Iterator[Caller]:
        """Every program that may call."""
        yield from self._current().values()

    def of_client(self, client: str) -> Caller | None:
        """The program that may speak for a device; None if there is none."""
        return next((caller for caller in self.all() if caller.may_speak_for(client)), None)

    def recognise(self, shown: bytes | None) -> Caller:
        """Return the caller to which these credentials belong.

        The comparison of tokens takes constant time.

        Args:
            shown: the caller's token, followed by its name in UTF-8; None: it showed nothing.

        Raises:
            Unauthenticated: nothing was shown, nobody of this name may call, or the token is not
                the caller's.
        """
        if shown is None:
            raise Unauthenticated("expected the caller's token and name, found none")
        token, name = shown[:TOKEN_BYTES], shown[TOKEN_BYTES:].decode(errors="replace")
        caller = self._current().get(name)
        expected = caller.token_sha256 if caller is not None else ""
        same = hmac.compare_digest(hashlib.sha256(token).hexdigest(), expected)
        if caller is None or not same:
            raise Unauthenticated(
                f"the token that {name[:_SHOWN]!r} shows is not one of this run: credentials are "
                "drawn anew whenever a run starts"
            )
        return caller


def write_credentials(path: Path, credentials: Credentials) -> None:
    """Write a program's credentials, as `write_secret` does."""
    write_secret(path, credentials.to_json())


def write_secret(path: Path, secret: str) -> None:
    """Write a file so that only its user can read it. A reader sees the old file or the new one,
    which belongs to the user of the old one: root may write for another."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = path.with_name(f"{path.name}.tmp")
    temporary.unlink(missing_ok=True)
    file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400)
    with os.fdopen(file, "wb") as writing:
        writing.write(secret.encode())
    if os.geteuid() == 0 and path.exists():
        before = path.stat()
        os.chown(temporary, before.st_uid, before.st_gid)
    os.replace(temporary, path)


def read_credentials(path: Path) -> Credentials:
    """Read a program's credentials.

    Raises:
        ConfigError: the file is missing, is not such a file, or others may read it.
    """
    content = read_secret(path)
    try:
        return Credentials.from_json(content)
    except ConfigError:  # its message might repeat a secret
        raise ConfigError(
            f"{path}: expected credentials as the command that starts the run writes them, found "
            "something else; start the run again"
        ) from None


def read_secret(path: Path, advice: str = "the command that starts the run writes it") -> bytes:
    """Read a file that no user but its owner may read.

    Args:
        advice: what to do if it cannot be read, for the message.

    Raises:
        ConfigError: it is missing or cannot be read, or its mode lets others read or write it.
    """
    try:
        with open(path, "rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if mode & 0o077:
                raise ConfigError(
                    f"{path}: expected a file that only its owner may read, found mode {mode:04o}; "
                    f"chmod 0400 {path}, and replace the secret if somebody may have read it"
                )
            return file.read()
    except OSError as error:
        raise ConfigError(
            f"{path}: expected a file that can be read, found: {os_reason(error)}; {advice}"
        ) from None
