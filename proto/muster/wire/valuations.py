"""Encoding of what rational devices measure as protobuf messages, and decoding."""

from typing import Any

from muster.common.errors import RemoteProtocolError
from muster.common.exchange import LARGEST_UTILITY, UtilityCurve, Valuation
from muster.v1 import fleet_pb2 as pb


def encode_valuation(valuation: Valuation) -> pb.Valuation:
    """Encode what a rational device measured."""
    fields, curve = valuation._asdict(), valuation.curve
    fields["curve"] = None if curve is None else pb.UtilityCurve(**curve._asdict())
    return pb.Valuation(**fields)


def decode_valuation(valuation: pb.Valuation) -> Valuation:
    """Decode what a rational device measured.

    Raises:
        RemoteProtocolError: a number is not finite, or out of its bounds.
    """
    # Those with `optional` are listed if they were sent, also if they are 0.
    given: dict[str, Any] = {field.name: value for field, value in valuation.ListFields()}
    own = given.pop("own_accuracy", None)
    for accuracy in (valuation.received_accuracy, own):
        if accuracy is not None and not 0 <= accuracy <= 1:
            raise RemoteProtocolError(
                f"an accuracy of {accuracy} in a valuation; expected a number from 0 to 1"
            )
    for name in ("fitted_utility", "r_squared", "received_loss", "own_loss"):
        if not abs(value := given.get(name, 0.0)) <= LARGEST_UTILITY:
            raise RemoteProtocolError(
                f"{name} = {value} in a valuation; expected a finite number of at most "
                f"{LARGEST_UTILITY:g}"
            )
    if (r_squared := given.get("r_squared", 0.0)) > 1:
        raise RemoteProtocolError(f"r_squared = {r_squared} in a valuation; expected at most 1")
    given["curve"] = _decode_curve(valuation.curve) if valuation.HasField("curve") else None
    given["received_accuracy"] = valuation.received_accuracy  # listed only if it is not 0
    return Valuation(own_accuracy=own, **given)


def _decode_curve(curve: pb.UtilityCurve) -> UtilityCurve:
    decoded = UtilityCurve(curve.a, curve.b, curve.c, curve.threshold)
    if not (decoded.a > 0 and all(abs(value) <= LARGEST_UTILITY for value in decoded)):
        raise RemoteProtocolError(
            f"a utility curve {list(decoded)}; expected a > 0 and finite numbers of at most "
            f"{LARGEST_UTILITY:g}"
        )
    return decoded
