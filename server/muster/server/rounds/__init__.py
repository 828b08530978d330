"""The rounds: the main loop, the state machine of one round, device selection, and the commit of a
closed round.

It imports updates, account, knowledge, evaluation, aggregators, the fleet, the settings and the
worker thread, and never rpc or gRPC.
"""
