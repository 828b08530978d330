"""Expectations: conditions on the results of a run, which the scenario states as `[[expect]]`.

`language` reads a condition, `facts` says what it may be about, and `settings` is the table of the
scenario. After the run, `records.judging` decides which hold. docs/expectations.md is the page for
users.
"""
