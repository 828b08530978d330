"""The server: selects, calls, collects, folds, commits. `python -m muster.server` is its program."""
