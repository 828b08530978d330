"""The aggregation of a closed round: the weights of its updates, the next version of the model that
they make, and the privacy that it costs; and the versions themselves.

It imports updates, strategy, and the folders below them, and never coordination.
"""
