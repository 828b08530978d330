"""Fleets that outlive their command: `muster up` and `muster down`."""
