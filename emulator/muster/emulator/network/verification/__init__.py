"""Proof, by measurement, that links deliver what a scenario asks of them."""

from muster.emulator.network.verification.gateways import verify_gateways
from muster.emulator.network.verification.measuring import Gateway
from muster.emulator.network.verification.result import Row, Tolerances, Verification
from muster.emulator.network.verification.verifying import verify

__all__ = ["Gateway", "Row", "Tolerances", "Verification", "verify", "verify_gateways"]
