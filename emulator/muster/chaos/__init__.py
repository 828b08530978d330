"""Random faults in random fleets over real processes: what `make chaos` runs.

A seed decides everything: `fleets` draws a small fleet, `fault_draws` a timeline of faults that the
fleet permits, and `plans` kills of programs in addition. `playing` runs the plan in processes,
kills what the plan says (`killer`, `run_processes`), and checks what the run has left.
docs/reliability.md says what is required of a run.
"""
