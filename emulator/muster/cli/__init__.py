"""The command line `muster`: a thin layer over the other folders, which it imports when a command
needs them. `entry` is the console script.
"""
