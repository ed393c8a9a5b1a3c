"""Everything that runs the game or changes weights."""

import os

# torch's threads wait for each other by spinning. Where another program needs a core too, every wait then lasts until
# the scheduler steps in, and training slows down many times over; a short spin costs little on an idle machine. It must
# be set before torch is imported, and a user's own setting holds.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")
