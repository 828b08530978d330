"""The updates that devices return: received, checked, kept, and folded into an exact sum.

It imports account, settings, and the folders below them, and neither aggregation nor coordination.
"""
