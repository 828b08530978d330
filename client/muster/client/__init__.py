"""The client: the program of a device. `muster.client.processes.nursery` forks its processes."""
