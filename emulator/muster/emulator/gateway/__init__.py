"""The gateway process: it relays the TCP connections of one group's devices and shapes them.

A gateway imports the settings of links (`links.settings`) and nothing else of the emulator.
"""
