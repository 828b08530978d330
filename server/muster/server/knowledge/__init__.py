"""The knowledge of aggregators: what they may know of the population and of past participation,
and the estimates that they make from it (propensities, calibrated weights).

It does no I/O. Of the other folders and modules of the server it imports only `fleet`.
"""
