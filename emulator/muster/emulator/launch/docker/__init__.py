"""Fleets in Docker: images, networks, containers, the Compose file, `muster up` and `down`."""
