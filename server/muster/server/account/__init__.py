"""The durable record of a run: the ledger (SQLite), model versions, traffic, and the rows that wait
for the next commit.

It never imports rpc or the main loop of the rounds. Of the server it imports the fleet,
`aggregators.State`, `knowledge.participation`, `rounds.round`, `rounds.closed_round` and
`updates.uploads`.
"""
