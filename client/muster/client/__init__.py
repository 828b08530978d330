"""The client: the program of a device. `python -m muster.client.nursery` forks its processes."""
