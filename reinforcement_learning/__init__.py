"""Everything that runs the game or changes a policy's weights."""

import os

# torch's threads wait for each other by spinning. If another program needs a core, every wait then lasts until the
# scheduler intervenes, and training slows down many times over; a short spin costs little on an idle machine. This must
# be set before torch is imported; a user's own setting takes precedence.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")
