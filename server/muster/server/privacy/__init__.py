"""Differential privacy: clipped updates, noise, and the account of what a run gives away.

It does no I/O. Of the other folders of the server it imports only aggregators.
"""
