"""The handlers of the Fleet service for a gRPC server, and the method Attend for a client.

They are like those of the generated code, except for messages with bodies: the messages of Attend
and the chunks of Fetch are bytes here, and other modules of `muster.wire` write and read them.
"""

from collections.abc import Callable
from typing import Any

import grpc

from muster.v1 import fleet_pb2 as pb
from muster.v1 import fleet_pb2_grpc

_SERVICE = pb.DESCRIPTOR.services_by_name["Fleet"]


def add_fleet_to_server(service: fleet_pb2_grpc.FleetServicer, server: grpc.aio.Server) -> None:
    """Add the methods of `service` to `server`; bodies are bytes, in Attend and in Fetch."""
    methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "Enroll": grpc.unary_unary_rpc_method_handler(
            service.Enroll, pb.EnrollRequest.FromString, pb.EnrollReply.SerializeToString
        ),
        "Attend": grpc.stream_stream_rpc_method_handler(service.Attend),
        "Fetch": grpc.unary_stream_rpc_method_handler(service.Fetch, pb.FetchRequest.FromString),
        "Submit": grpc.stream_unary_rpc_method_handler(
            service.Submit, pb.SubmitMessage.FromString, pb.Receipt.SerializeToString
        ),
        "SubmitSum": grpc.stream_unary_rpc_method_handler(
            service.SubmitSum, pb.SumMessage.FromString, pb.SumReceipt.SerializeToString
        ),
        "Probe": grpc.stream_stream_rpc_method_handler(
            service.Probe, pb.ProbeMessage.FromString, pb.ProbeReply.SerializeToString
        ),
    }
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(_SERVICE.full_name, methods),)
    )


def attend(channel: grpc.aio.Channel) -> Callable[..., grpc.aio.StreamStreamCall[bytes, bytes]]:
    """The method Attend of the Fleet service over `channel`; it reads and writes bytes."""
    return channel.stream_stream(f"/{_SERVICE.full_name}/Attend")
