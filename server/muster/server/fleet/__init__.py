"""The fleet: the devices of the population, the processes that connect them, and the patience of
the server with them.

It imports no other folder of the server.
"""
