"""The rounds: the main loop, the life of one round, who is selected, and what a closed round is.

It imports updates, account, knowledge and aggregators, and never gRPC.
"""
