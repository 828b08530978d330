"""Backends: how the server and the devices are brought to life."""
