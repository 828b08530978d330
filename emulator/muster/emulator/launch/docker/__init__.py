"""The Docker backend: images, networks, containers, the Compose file, `muster up` and `down`."""
