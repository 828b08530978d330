"""Verifies by measurement that links deliver what a scenario asks of them."""

from muster.emulator.verification.gateways import verify_gateways
from muster.emulator.verification.result import Row, Tolerances, Verification
from muster.emulator.verification.verifying import verify

__all__ = ["Row", "Tolerances", "Verification", "verify", "verify_gateways"]
