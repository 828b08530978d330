"""Tasks: data, partitions, models and losses, on which server and devices must agree.

The modules that read scenarios import neither torch nor scikit-learn, so the server process and the
command line do without them.
"""
