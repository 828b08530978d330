"""Emulated links: their settings and presets, control of a run's gateways, and the measurement of
links (`verification`).
"""
