"""Conversion between protobuf messages and domain objects, which no other code does.

This package makes no decisions: it decodes a message, or refuses it and says what is wrong.
"""

PROTOCOL_VERSION = 8
"""Version of the protocol. Both ends of a run must have the same; a server refuses another one."""

CHUNK_BYTES = 1 << 20
"""Bytes of a chunk of a model. Measured on loopback with two cores, chunks of 1 MiB stream at
1.1-1.5 GB/s, of 64 KiB at 0.4, and of 16 MiB at 0.5."""

LEAST_CHUNK_BYTES = 4 << 10
"""The smallest chunk of a model that a device may ask for. Each chunk costs the server a call of
gRPC."""

UPLOAD_BYTES = 256 << 10
"""Bytes of a chunk of an upload. They are smaller than those of a download, because gRPC keeps
buffers of one message for each connection that ever uploaded. With 1 MiB, 100 devices took a
quarter more of the server's memory than 10 devices; with this size they take no more, and uploads
are as fast."""

INLINE_BYTES = 64 << 10
"""Models and updates up to this many bytes travel inside Attend, and are stored in the rows of the
ledger."""

SESSION = "muster-session-bin"
TOKEN = "muster-token-bin"
"""Metadata keys of the session, and of the caller's token and name
(`muster.common.credentials.Credentials.shown`). Values of keys that end in -bin are bytes."""

RETRY_AFTER = "muster-retry-after-s"
"""Trailing metadata of a call that is refused with RESOURCE_EXHAUSTED because there are too many:
the seconds for which the caller should wait at least."""
