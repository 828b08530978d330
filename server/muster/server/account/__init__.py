"""The durable record of a run: the ledger (SQLite), model versions, traffic, and the rows that wait
for the next commit.

Of the other folders of the server it imports fleet, rounds, `aggregators.State` and
`knowledge.participation`.
"""
