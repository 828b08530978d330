"""Reads a TOML file into a validated `Scenario`, in which every default is filled in."""
