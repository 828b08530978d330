"""Secure aggregation: what devices and server compute alike.

The protocol is that of Bonawitz et al. (2017), "Practical secure aggregation for privacy-preserving
machine learning", on the sparse graph of Bell et al. (2020), "Secure single-server aggregation with
(poly)logarithmic overhead". The pages call what hides an update a *pad*, because a mask is another
thing here (`muster.common.masks`).
"""
