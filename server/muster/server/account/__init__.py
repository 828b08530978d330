"""What the server remembers: the ledger (SQLite), model versions, traffic, and rows that wait for
the next commit. It imports nothing of the server that talks to devices.
"""
