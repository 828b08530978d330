"""Tasks: data, partitions, models and losses, on which server and devices must agree.

Importing the modules that read scenarios imports neither torch nor scikit-learn, so the server
process and the command line do without them.
"""
