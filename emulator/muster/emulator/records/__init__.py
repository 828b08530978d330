"""The results of a run, read from its folder alone: the account as data frames, the summary, the
report, the availability traces of its devices, and exports for other programs.
"""
