"""What a run leaves, read from its folder alone: the account as data frames, the summary, the
report, and the traces of its devices' availability.
"""
