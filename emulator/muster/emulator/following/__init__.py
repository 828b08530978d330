"""What people see while a run goes on: progress on a terminal, `muster watch` and `muster status`."""
