"""The supervisor's side of emulated links: the gateways of a running fleet, and faults of their links."""
