"""The gateway process: it relays the TCP connections of one group's devices and shapes them.

A gateway imports only the settings of links (`links.settings`) from the rest of the emulator.
"""
