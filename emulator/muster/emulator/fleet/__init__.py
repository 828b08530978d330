"""The population of a scenario: the covariates of its devices, their enrollment and simulation, the
exact truth about participation, and the part of this truth that the server sees.
"""
