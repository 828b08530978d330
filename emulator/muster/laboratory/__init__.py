"""The laboratory: what another setting would have done with the recorded life of a fleet."""
