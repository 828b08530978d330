"""Settings of gRPC channels and servers, on which both ends of a connection must agree."""

from collections.abc import Collection, Iterable

from muster.common.lines import LinkModel
from muster.wire import CHUNK_BYTES, INLINE_BYTES, UPLOAD_BYTES

_MESSAGE_BYTES = CHUNK_BYTES + 2 * INLINE_BYTES
"""Bytes of the largest message that either end reads: a chunk, with room for its envelope."""

_KEEPALIVE_S = 20
_KEEPALIVE_TIMEOUT_S = 20

IN_FLIGHT_BYTES = 2 * CHUNK_BYTES
"""Bytes that may be in flight ahead of a ping: a message and its window at either end."""

_WINDOW_BYTES = 16 << 20
"""The largest window. It costs memory for every device that uploads."""

METADATA_BYTES = 4 << 10
"""Bytes of the metadata of a call. The largest that a device sends is its token, with its name."""

STREAMS = 32
"""Streams of a connection."""

_HANDSHAKE_S = 20
"""Seconds for the handshakes of TCP, TLS and HTTP/2 on a fast link."""

_IDLE_S = 120
"""Seconds without a call after which the server closes a connection. A device that trains for
longer connects again for its upload, which takes one round trip, and two with TLS."""

Options = list[tuple[str, int]]

_BOTH: Options = [
    ("grpc.max_receive_message_length", _MESSAGE_BYTES),
    ("grpc.max_send_message_length", _MESSAGE_BYTES),
    # Both ends must have the same, or the server answers pings with GOAWAY too_many_pings.
    ("grpc.keepalive_time_ms", _KEEPALIVE_S * 1000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # One HTTP/2 frame per message; with the default of 16 KiB, 40 KB would already take three.
    ("grpc.http2.max_frame_size", CHUNK_BYTES),
    # Probing the bandwidth-delay product costs a ping for every burst of data.
    ("grpc.http2.bdp_probe", 0),
]

_SERVER: Options = [
    *_BOTH,
    ("grpc.http2.min_recv_ping_interval_without_data_ms", _KEEPALIVE_S * 1000 // 4),
    ("grpc.http2.max_ping_strikes", 0),
    # Otherwise two servers on one port would silently share its connections.
    ("grpc.so_reuseport", 0),
    ("grpc.max_concurrent_streams", STREAMS),
    # Up to the first number gRPC refuses some calls by chance, from the second on all.
    ("grpc.max_metadata_size", METADATA_BYTES),
    ("grpc.absolute_max_metadata_size", METADATA_BYTES),
    ("grpc.max_connection_idle_ms", _IDLE_S * 1000),
]

_CLIENT: Options = [
    *_BOTH,
    # Control and bulk are two channels to one address. Without a pool of their own they would share
    # one connection, and a heartbeat would wait behind an upload.
    ("grpc.use_local_subchannel_pool", 1),
    # The session decides when to reconnect, so gRPC's own back-off must be short.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.enable_retries", 0),
]


def server_options(lines: Iterable[LinkModel] = (), connections: int | None = None) -> Options:
    """Options of a server whose devices have these links.

    Args:
        connections: most connections at the same time; gRPC closes those beyond. None: no limit.
    """
    slowest = tuple(lines)
    options = [*_SERVER, *_following(slowest)]
    handshake_s = _HANDSHAKE_S + _patience_s(slowest)
    options.append(("grpc.server_handshake_timeout_ms", int(handshake_s * 1000)))
    if connections is not None:
        options.append(("grpc.max_allowed_incoming_connections", connections))
    return options


def client_options(line: LinkModel | None = None) -> Options:
    """Options of a device's channels over its link."""
    return [*_CLIENT, *_following((line,) if line is not None else ())]


def _following(lines: Collection[LinkModel]) -> Options:
    """The options that depend on the slowest link and on the link with the most bytes in flight."""
    under_way = max((line.under_way_bytes for line in lines), default=0.0)
    return [
        # A peer that is busy receiving is not dead, however slow its link.
        ("grpc.keepalive_timeout_ms", int((_KEEPALIVE_TIMEOUT_S + _patience_s(lines)) * 1000)),
        # The window holds an inline body, or a chunk of an upload. On a link with high bandwidth
        # and delay it holds twice the bytes in flight.
        ("grpc.http2.lookahead_bytes", int(min(_WINDOW_BYTES, max(UPLOAD_BYTES, 2 * under_way)))),
    ]


def _patience_s(lines: Collection[LinkModel]) -> float:
    """Seconds for which a peer on the slowest link may be busy with what is under way."""
    return max((line.patience_s(IN_FLIGHT_BYTES) for line in lines), default=0.0)
