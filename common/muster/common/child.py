"""Runs a program that dies with the process that started it.

    python -P -m muster.common.child MODULE ARGUMENT...

runs MODULE as `python -m MODULE ARGUMENT...` would. Before that it asks the kernel to kill this
process when its parent is gone, because the program's own imports may take seconds, and a parent
that dies meanwhile must not leave an orphan. The program imports code of the user's own only as the
run has announced it (`muster.common.own_code`); containers start with this command too.
`muster.common.processes.child_command` makes it. With `--loaded` before MODULE, a package, only the
imports are done, and the program begins when a line comes on the standard input. A program that
ends with an error whose cause lies outside muster says it in one line, without a traceback.
"""

import os
import runpy
import sys
from importlib import import_module

from muster.common.causes import outer_cause
from muster.common.garbage import import_quickly
from muster.common.processes import LOADED, OWN_CODE, die_with_parent


def main() -> None:
    """Run the module that the command line names."""
    die_with_parent()
    import_quickly()
    try:
        _run()
    except Exception as error:
        if not (cause := outer_cause(error)):
            raise
        sys.exit(cause)  # which prints it on standard error; the status is 1


def _run() -> None:
    if OWN_CODE in os.environ:
        import_module("muster.common.own_code").follow()
    del sys.argv[0]
    if sys.argv[0] == LOADED:
        del sys.argv[0]
        program = import_module(f"{sys.argv[0]}.__main__")
        if sys.stdin.readline():
            program.main()
        return
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
