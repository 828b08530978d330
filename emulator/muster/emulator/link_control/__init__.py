"""The supervisor's side of emulated links: the gateways of a run, and faults of links."""
