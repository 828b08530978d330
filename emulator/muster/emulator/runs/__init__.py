"""One run: its folder, its processes, the supervisor that starts and watches them, and how a run is
continued, stopped and followed.

The folder is called `runs` because `muster.emulator.run` is a function.
"""
