"""Fleets that outlive their command: `muster up` and `muster down`, with Docker Compose or in a swarm."""
