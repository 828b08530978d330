"""The pure part of a round: its state machine, its cohort, the selection of devices, and the modes.

It does no I/O. Of the other folders of the server it imports only fleet.
"""
