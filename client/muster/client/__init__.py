"""The client: a device of its own. `python -m muster.client.nursery` forks them."""
