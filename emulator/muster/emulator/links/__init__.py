"""The settings of emulated links, and their shapes."""
