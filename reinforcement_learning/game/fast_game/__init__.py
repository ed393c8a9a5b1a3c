"""A faster version of Neural MMO: observations, rewards, deaths and random numbers are equal bit for bit.

The parts that dominate the profile are vectorised over agents and write directly into the buffer that the policy reads;
everything else is the game's own code. `tests/reinforcement_learning/game/test_fast_game.py` plays both side by side.
"""
