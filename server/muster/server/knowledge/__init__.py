"""What aggregators may know of the population and of past participation, and what they estimate
from it (propensities, calibrated weights). Pure: no I/O.
"""
