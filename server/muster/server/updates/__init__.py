"""The updates that devices return: received, checked, kept, and folded into an exact sum.

It imports account, aggregators, the fleet and the settings; of rounds it imports only `round`,
never the main loop.
"""
