"""Which worlds a study's stages play: seeds of commands, and one of its own for each training."""

import shlex
import zlib
from collections.abc import Mapping

DEFAULT_SEEDS = {"intervene.py": 0, "extract_activations.py": 1, "evaluate.py": 1}
"""Scripts that play episodes of the seed that --seed gives, and the seed without it."""

_SEED = ("--seed", "-s")
_REPEATS = ("--repeats", "-r")  # of evaluate.py: so many seeds, one after the other
_LARGEST = 99_999


def with_own_seed(run: str, name: str) -> str:
    """Return the command of a stage that is one of several, with a seed of its own if it plays episodes without one.

    The seed follows from the stage's name, so it stays the same when other stages are added.
    """
    if run.split(maxsplit=1)[0] not in DEFAULT_SEEDS or _said(run, _SEED) is not None:
        return run
    return f"{run} --seed {1 + zlib.crc32(name.encode()) % _LARGEST}"


def seeds_of(commands: Mapping[str, str], needs: Mapping[str, set[str]]) -> dict[str, frozenset[str]]:
    """Return the seeds whose episodes are behind the results of each stage, of which stages of one seed share worlds.

    Args:
        commands: of each stage, in their order.
        needs: stages before it whose folders its command reads. One that plays nothing has their seeds, or without
            any, its own name.
    """
    seeds: dict[str, frozenset[str]] = {}
    for name, command in commands.items():
        if command.split(maxsplit=1)[0] in DEFAULT_SEEDS:
            seeds[name] = _seeds(command)
        else:
            read = frozenset().union(*(seeds[other] for other in needs[name] if other in seeds))
            seeds[name] = read or frozenset({name})
    return seeds


def _seeds(command: str) -> frozenset[str]:
    """Return the seeds whose episodes a command plays; what is no number, its script refuses."""
    seed = _said(command, _SEED) or str(DEFAULT_SEEDS[command.split(maxsplit=1)[0]])
    repeats = _said(command, _REPEATS) or "1"
    if not (seed.isdecimal() and repeats.isdecimal()):
        return frozenset({seed})
    return frozenset(str(int(seed) + place) for place in range(int(repeats)))


def _said(command: str, options: tuple[str, ...]) -> str | None:
    """Return what a command says of an option, which has several names."""
    words = shlex.split(command)
    for place, word in enumerate(words):
        option, _, value = word.partition("=")
        if option in options:
            return value or " ".join(words[place + 1 : place + 2])
    return None
