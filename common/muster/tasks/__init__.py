"""What both ends must agree on to learn: data, partitions, models and losses, by name.

Importing any module here imports neither torch nor scikit-learn: the server process and the
command line read scenarios without them.
"""
