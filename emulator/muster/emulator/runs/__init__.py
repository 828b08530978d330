"""One run: the supervisor that starts and watches its programs, and how a run is continued and
concluded.

The folder is called `runs` because `muster.emulator.run` is a function.
"""
