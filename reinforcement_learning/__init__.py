"""Everything that runs the game or changes weights."""

import os

# torch's threads wait for each other by spinning. Where another program needs a core too, every wait then lasts until
# the scheduler steps in, and training runs 40 times slower; a short spin costs a tenth on an idle machine. It must be
# set before torch is imported, and a user's own setting holds.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")
