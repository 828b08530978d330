"""One run: its folder, the processes it is made of, the supervisor that starts and watches them, and
how to continue, stop and follow it.

The folder is called `runs` because `muster.emulator.run` is a function.
"""
