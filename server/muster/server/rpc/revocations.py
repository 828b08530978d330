"""The credentials that the operator has revoked during the run.

They are kept in a file of the run folder, so that a restarted server refuses them too. A credential
is known by its program's name and the SHA-256 of its token. Every start of a run draws new tokens,
so a run that is resumed begins without revoked credentials.
"""

import json
from pathlib import Path

from muster.common.credentials import Caller
from muster.common.errors import ConfigError
from muster.common.files import refusal_of, write_atomic

REVOKED = "revoked.json"
"""The file, relative to the run folder: a list of [name of the program, SHA-256 of its token]."""


class Revocations:
    """The revoked credentials of a run.

    Args:
        path: the file in which they are kept; it need not exist. None: they are in memory only.

    Raises:
        ConfigError: the file is damaged. Nobody could tell which credentials are revoked.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._revoked: set[tuple[str, str]] = set()
        if path is not None and path.exists():
            try:
                self._revoked = {(name, digest) for name, digest in json.loads(path.read_bytes())}
            except (TypeError, ValueError):
                raise ConfigError(
                    f"{path}: expected the revoked credentials of the run, found something else; "
                    "remove the file, and revoke them again"
                ) from None

    def __contains__(self, caller: Caller) -> bool:
        return (caller.name, caller.token_sha256) in self._revoked

    def add(self, caller: Caller) -> None:
        """Revoke the credentials of a program.

        Raises:
            ConfigError: this cannot be written. The credentials are revoked all the same, until the
                server is restarted.
        """
        self._revoked.add((caller.name, caller.token_sha256))
        if self._path is not None:
            with refusal_of(
                f"{caller.name} is revoked, but a restarted server would not know",
                "make room, and revoke it again",
            ):
                write_atomic(self._path, json.dumps(sorted(self._revoked)).encode(), durable=True)
