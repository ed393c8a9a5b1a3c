"""A faster version of Neural MMO: observations, rewards, deaths and random numbers are equal bit for bit.

The parts that dominate the profile are vectorised over agents, write directly into the buffer that the policy reads, or
are compiled (`compiled_game.py`); everything else is the game's own code.
`tests/reinforcement_learning/game/test_fast_game.py` plays both side by side.
"""

from reinforcement_learning.compiled_game import compiled_modules

# Python looks there first; modules that are not compiled are found beside this file.
__path__[:0] = compiled_modules()
