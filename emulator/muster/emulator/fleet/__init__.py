"""The population of a scenario: covariates, enrollment, the lives of devices, the exact truth about
participation, and the part of it that the server is told.
"""
