"""How many processes share the work of one run, as `torchrun` says in environment variables."""

import os


def number_of_processes() -> int:
    """Return the number of processes that `torchrun` started for this run on all machines; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def processes_on_this_machine() -> int:
    """Return the number of processes that `torchrun` started for this run on this machine; 1 without it."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
