"""Settings that both ends of a connection must agree on."""

from collections.abc import Collection, Iterable

from muster.common.lines import LinkModel
from muster.wire import CHUNK_BYTES, INLINE_BYTES, UPLOAD_BYTES

ENVIRONMENT = {
    # Read when gRPC is imported. Its older pollers answer sooner than the event engine: a
    # round of 10 processes that echo 40 KB took 1.45 ms instead of 1.9, both ends in one run.
    "GRPC_EXPERIMENTS": "-event_engine_client,-event_engine_listener",
    # glibc's arenas, one for each of gRPC's threads, keep what they were given.
    "MALLOC_ARENA_MAX": "2",
}

_MESSAGE_BYTES = CHUNK_BYTES + 2 * INLINE_BYTES
"""The largest message either end reads: a chunk, with room for its envelope."""

_KEEPALIVE_S = 20
_KEEPALIVE_TIMEOUT_S = 20

IN_FLIGHT_BYTES = 2 * CHUNK_BYTES
"""What may be under way ahead of a ping on a connection: a message and its window at either end."""

_WINDOW_BYTES = 16 << 20
"""The largest window; it is memory, for every device that uploads."""

Options = list[tuple[str, int]]

_BOTH: Options = [
    ("grpc.max_receive_message_length", _MESSAGE_BYTES),
    ("grpc.max_send_message_length", _MESSAGE_BYTES),
    # Both ends together, or the server answers pings with GOAWAY too_many_pings.
    ("grpc.keepalive_time_ms", _KEEPALIVE_S * 1000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # One HTTP/2 frame per message: with the default of 16 KiB one of 40 KB already takes three.
    ("grpc.http2.max_frame_size", CHUNK_BYTES),
    # Probing the bandwidth-delay product costs a ping for every burst of data.
    ("grpc.http2.bdp_probe", 0),
]

_SERVER: Options = [
    *_BOTH,
    ("grpc.http2.min_recv_ping_interval_without_data_ms", _KEEPALIVE_S * 1000 // 4),
    ("grpc.http2.max_ping_strikes", 0),
    # Two servers on one port would share its connections silently.
    ("grpc.so_reuseport", 0),
    ("grpc.max_concurrent_streams", 32),
]

_CLIENT: Options = [
    *_BOTH,
    # Control and bulk are two channels to one address: without a pool of its own each would share
    # the other's connection, and a heartbeat would wait behind an upload.
    ("grpc.use_local_subchannel_pool", 1),
    # Reconnecting is the session's business: gRPC's own back-off would hide behind it.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.enable_retries", 0),
]


def server_options(lines: Iterable[LinkModel] = ()) -> Options:
    """Options of a server whose devices have these links."""
    return [*_SERVER, *_following(tuple(lines))]


def client_options(line: LinkModel | None = None) -> Options:
    """Options of a device's channels over its link."""
    return [*_CLIENT, *_following((line,) if line is not None else ())]


def _following(lines: Collection[LinkModel]) -> Options:
    """What follows the slowest, and the longest, of some links."""
    patience_s = max((line.patience_s(IN_FLIGHT_BYTES) for line in lines), default=0.0)
    under_way = max((line.under_way_bytes for line in lines), default=0.0)
    return [
        # A peer that is busy receiving is not dead, however slow its link.
        ("grpc.keepalive_timeout_ms", int((_KEEPALIVE_TIMEOUT_S + patience_s) * 1000)),
        # A window in which what travels inline, or a chunk of an upload, fits at once; and over a
        # long fat link twice what is under way.
        ("grpc.http2.lookahead_bytes", int(min(_WINDOW_BYTES, max(UPLOAD_BYTES, 2 * under_way)))),
    ]
