"""`python -m muster.simulation`: search for histories that violate an invariant (`command`)."""

import sys

from muster.simulation import probes

if __name__ == "__main__":
    probes.install()  # before anything of the product is imported

    from muster.simulation.command import main

    sys.exit(main())
