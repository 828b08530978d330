"""Settings that both ends of a connection must agree on."""

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
    # A window in which what travels inline, or a chunk of an upload, fits at once.
    ("grpc.http2.lookahead_bytes", UPLOAD_BYTES),
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


def server_options(patience_s: float = 0.0) -> Options:
    """Options of a server.

    Args:
        patience_s: seconds that the answer to a ping may take because of the slowest device's link,
            `IN_FLIGHT_BYTES` ahead of it.
    """
    return [*_SERVER, _keepalive_timeout(patience_s)]


def client_options(patience_s: float = 0.0) -> Options:
    """Options of a device's channels; `patience_s` as above, for its own link."""
    return [*_CLIENT, _keepalive_timeout(patience_s)]


def _keepalive_timeout(patience_s: float) -> tuple[str, int]:
    # A peer that is busy receiving is not dead, however slow its link.
    return "grpc.keepalive_timeout_ms", int((_KEEPALIVE_TIMEOUT_S + patience_s) * 1000)
