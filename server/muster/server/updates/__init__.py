"""The updates that devices return: received, checked, kept, and folded into an exact sum.

It imports account and aggregators, and never the main loop of the rounds.
"""
