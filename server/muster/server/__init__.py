"""The server: selects, calls, collects, folds, commits. Its program is `muster.server.__main__`."""
