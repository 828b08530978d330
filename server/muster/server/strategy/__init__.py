"""The strategy of an app, which decides what the rounds do, in a process beside the server.

`process` is the program that runs the strategy; it alone imports the app. `pipe` has the messages
between it and the server. `driver` drives it, and `history` stores what it was told, so that a
restarted server can tell it again. `coordination` uses the driver; it does not know whose strategy
runs.
"""
