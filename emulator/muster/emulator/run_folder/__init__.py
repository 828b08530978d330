"""A run as its folder shows it: its files, and calls to its server and its supervisor."""
