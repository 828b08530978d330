"""The settings of the server: the [server] table of a scenario, and the configuration of the
server's process.

It does no I/O. Of the other folders of the server it imports aggregators, knowledge and rounds.
"""
