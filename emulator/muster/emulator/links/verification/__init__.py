"""Verifies by measurement that links deliver what a scenario asks of them."""

from muster.emulator.links.verification.gateways import verify_gateways
from muster.emulator.links.verification.measuring import GatewayUnderTest
from muster.emulator.links.verification.result import Row, Tolerances, Verification
from muster.emulator.links.verification.verifying import verify

__all__ = ["GatewayUnderTest", "Row", "Tolerances", "Verification", "verify", "verify_gateways"]
