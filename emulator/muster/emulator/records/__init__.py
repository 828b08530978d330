"""What a run leaves, read from its folder alone: the account as data frames, the summary, traces of
faults, and which expectations hold (`fact_values` reads the ledger, `judging` decides)."""
