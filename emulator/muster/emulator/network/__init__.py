"""The emulated network: gateways through which the devices of a group reach the server."""
