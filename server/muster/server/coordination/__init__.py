"""The coordination of a run: the main loop, which calls devices, closes rounds, makes the next
version of each and commits it.

It imports every folder of the server except metrics and rpc, and never gRPC.
"""
