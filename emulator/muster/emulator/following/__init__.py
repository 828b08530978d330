"""Progress on a terminal, `muster watch` and `muster status`."""
