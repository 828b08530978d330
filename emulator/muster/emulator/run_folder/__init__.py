"""A run as its folder shows it: its files, and the ways to talk to its server and its supervisor."""
