"""The connection of a pack of devices to the server, and to the gateway that grants slots."""
