"""Decides who makes a call, and whether it may, before anything of the call's request is read.

| methods | who may call | what the caller shows |
|---|---|---|
| Enroll, Probe | devices | the token and the name of their process |
| the other methods of Fleet | devices that have enrolled | their session |
| all methods of Operator | the operator | its token and name |

With TLS, the caller's certificate must have the same name: of the token, or of the process that
began the session. A session that somebody else has seen is then worth nothing to him.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import grpc

from muster.common.credentials import OPERATOR, Caller, Callers, CredentialsSource, device_name
from muster.common.errors import Forbidden, Unauthenticated
from muster.server.fleet.devices import ConnectedPack
from muster.server.fleet.fleet import Fleet
from muster.server.rpc.revocations import Revocations
from muster.v1 import fleet_pb2, operator_pb2
from muster.wire import SESSION, TOKEN
from muster.wire.connections.encryption import certified_names, identity_uri

Context = grpc.aio.ServicerContext[Any, Any]

Metadata = Iterable[tuple[str, str | bytes]]
"""The metadata of a call: (key, value) pairs that travel beside its messages."""

_OPERATOR = operator_pb2.DESCRIPTOR.services_by_name["Operator"].full_name
_FLEET = fleet_pb2.DESCRIPTOR.services_by_name["Fleet"].full_name
ENROLL = f"/{_FLEET}/Enroll"
"""The full name of the method with which a device enrolls."""

_WITH_TOKEN = frozenset({ENROLL, f"/{_FLEET}/Probe"})
_DEVICES = device_name("")


class Authentication:
    """Authenticates and authorises the callers of both services.

    Attributes:
        certified: whether callers have certificates, so that `confirm` has to be called too.

    Args:
        source: the server's credentials, with the callers that it knows.
        fleet: knows the sessions.
        revocations: None: none is kept.
    """

    def __init__(
        self, source: CredentialsSource, fleet: Fleet, revocations: Revocations | None = None
    ) -> None:
        self._fleet = fleet
        self._revocations = revocations or Revocations()
        self._callers = Callers(source)
        credentials = source.current()
        self._run = credentials.run
        self.certified = credentials.tls is not None

    def identify(self, method: str, shown: Metadata) -> str:
        """The name of a method's caller, by its metadata.

        Args:
            method: the full name, `/muster.v1.Fleet/Enroll`.

        Raises:
            Unauthenticated: its token or session is missing, or not one of this run.
            Forbidden: it is known, but may not call this method.
        """
        if method in _WITH_TOKEN:
            return self._of_token(shown, device=True).name
        if method.startswith(f"/{_OPERATOR}/"):
            return self._of_token(shown, device=False).name
        name = self._fleet.of_session(_value(shown, SESSION)).caller
        self.require_valid(name)
        return name

    def require_valid(self, name: str) -> None:
        """Check that the credentials of a known caller still hold.

        Raises:
            Unauthenticated: they have been revoked.
        """
        caller = self._callers.named(name)
        if caller is None or caller in self._revocations:
            raise Unauthenticated(f"the credentials of {name} have been revoked")

    def confirm(self, name: str, context: Context) -> None:
        """Check that a caller has the certificate of this name.

        Raises:
            Forbidden: it has another one.
        """
        shown = context.auth_context().get("x509_subject_alternative_name", ())
        names = certified_names(self._run, shown)
        if identity_uri(self._run, name) not in names:
            raise Forbidden(
                f"the credentials are those of {name}; the certificate is that of "
                f"{', '.join(sorted(names)) or 'another run'}"
            )

    def enrolling(self, context: Context) -> Caller:
        """The caller of Enroll, with the devices for which it may speak.

        Raises:
            Unauthenticated, Forbidden: see `identify`.
        """
        return self._of_token(context.invocation_metadata() or (), device=True)

    def pack(self, context: Context) -> ConnectedPack:
        """The pack that holds the session of a call.

        Raises:
            Unauthenticated: no pack holds it; the devices must enroll.
        """
        return self._fleet.of_session(_value(context.invocation_metadata() or (), SESSION))

    def caller_of(self, client: str) -> Caller | None:
        """The process of a device, as the server knows it; None if there is no such device."""
        return self._callers.of_client(client)

    def revoke(self, caller: Caller) -> None:
        """Refuse these credentials from now on.

        Raises:
            ConfigError: see `Revocations.add`.
        """
        self._revocations.add(caller)

    def revoked_clients(self) -> Iterator[str]:
        """The devices whose credentials were revoked before the server was restarted."""
        for caller in self._callers.all():
            if caller in self._revocations:
                yield from caller.clients

    def _of_token(self, shown: Metadata, device: bool) -> Caller:
        caller = self._callers.recognise(_value(shown, TOKEN))
        self.require_valid(caller.name)
        if device and not caller.name.startswith(_DEVICES):
            raise Forbidden(f"only devices make this call; {caller.name} is none")
        if not device and caller.name != OPERATOR:
            raise Forbidden(f"only the operator makes this call; {caller.name} may not")
        return caller


def _value(shown: Metadata, key: str) -> bytes | None:
    """The value of a key in a call's metadata; None if it is not there."""
    for name, value in shown:
        if name == key:
            return value if isinstance(value, bytes) else value.encode()
    return None
