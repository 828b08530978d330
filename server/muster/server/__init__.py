"""The server: runs rounds, in which it selects and calls devices, collects their updates, folds
them into a sum, and commits the next version. Its program is `muster.server.__main__`.
"""
