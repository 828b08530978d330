"""Emulated links as the emulator controls them: settings and presets, the gateways of a run, and
the measurement of links (`verification`).
"""
