"""Deterministic simulation: a whole run in one process, with virtual time and faults from a seed.

The server, the devices and the evaluator are the production classes. Only the transport, the clock
and the event loop are replaced. This package may import everything below the emulator, and the
emulator's `process_configs`.
"""
