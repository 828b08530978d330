"""The Fleet service's methods for a gRPC server.

As the generated `add_FleetServicer_to_server` has them, but for what goes to many devices: the
server's messages of Attend and the chunks of Fetch are serialised by `muster.wire`, once.
"""

from typing import Any

import grpc

from muster.v1 import fleet_pb2 as pb
from muster.v1 import fleet_pb2_grpc

_SERVICE = pb.DESCRIPTOR.services_by_name["Fleet"]


def add_fleet_to_server(service: fleet_pb2_grpc.FleetServicer, server: grpc.aio.Server) -> None:
    """Serve the methods of `service`; Attend and Fetch write bytes."""
    methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "Enroll": grpc.unary_unary_rpc_method_handler(
            service.Enroll, pb.EnrollRequest.FromString, pb.EnrollReply.SerializeToString
        ),
        "Attend": grpc.stream_stream_rpc_method_handler(
            service.Attend, pb.DeviceMessage.FromString
        ),
        "Fetch": grpc.unary_stream_rpc_method_handler(service.Fetch, pb.FetchRequest.FromString),
        "Submit": grpc.stream_unary_rpc_method_handler(
            service.Submit, pb.SubmitMessage.FromString, pb.Receipt.SerializeToString
        ),
    }
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(_SERVICE.full_name, methods),)
    )
