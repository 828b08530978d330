"""Opens channels and ports of gRPC."""

from typing import Any

import grpc

from muster.common.credentials import Credentials, CredentialsSource, TlsIdentity
from muster.wire.channels import Options
from muster.wire.connections.encryption import require_encrypted, server_host

_DIRECT: list[tuple[str, Any]] = [
    # gRPC would use the proxies of the environment even for 127.0.0.1, and the programs of a run
    # reach each other without any. The second option is for GRPC_ADDRESS_HTTP_PROXY.
    ("grpc.enable_http_proxy", 0),
    ("grpc.address_http_proxy_enabled_addresses", ""),
]


def open_channel(
    address: str, options: Options, credentials: Credentials | None
) -> grpc.aio.Channel:
    """A channel to the server at host:port; it connects when it is first used."""
    if credentials is None or credentials.tls is None:
        return grpc.aio.insecure_channel(address, options=[*options, *_DIRECT])
    return grpc.aio.secure_channel(
        address, _channel_credentials(credentials.tls), options=_to_server(options, credentials)
    )


def open_blocking_channel(
    address: str, options: Options, credentials: Credentials | None
) -> grpc.Channel:
    """Like `open_channel`, for code without an event loop."""
    if credentials is None or credentials.tls is None:
        return grpc.insecure_channel(address, options=[*options, *_DIRECT])
    return grpc.secure_channel(
        address, _channel_credentials(credentials.tls), options=_to_server(options, credentials)
    )


def add_port(server: Any, address: str, source: CredentialsSource | None) -> int:
    """Let a gRPC server listen at host:port, and return the port. Port 0 stands for a free one.

    With TLS, every handshake uses the certificate that `source` has at that moment.

    Raises:
        ConfigError: the address is not a loopback address, and there is no TLS.
        RuntimeError: the port is taken, or the host is not an address of this machine.
    """
    tls = None if source is None else source.current().tls
    require_encrypted(address.rpartition(":")[0], tls)
    if source is None or tls is None:
        return int(server.add_insecure_port(address))
    return int(server.add_secure_port(address, _server_credentials(source, tls)))


def _to_server(options: Options, credentials: Credentials) -> list[tuple[str, Any]]:
    return [*options, *_DIRECT, ("grpc.ssl_target_name_override", server_host(credentials.run))]


def _channel_credentials(tls: TlsIdentity) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(
        tls.authority.encode(), tls.key.encode(), tls.certificate.encode()
    )


def _server_credentials(source: CredentialsSource, first: TlsIdentity) -> grpc.ServerCredentials:
    latest = first

    def configuration(tls: TlsIdentity) -> Any:
        pair = (tls.key.encode(), tls.certificate.encode())
        return grpc.ssl_server_certificate_configuration([pair], tls.authority.encode())

    def replaced() -> Any:
        """The new certificate, or None if it is still the same."""
        nonlocal latest
        tls = source.current().tls
        if tls is None or tls == latest:
            return None
        latest = tls
        return configuration(tls)

    return grpc.dynamic_ssl_server_credentials(
        configuration(first), replaced, require_client_authentication=True
    )
