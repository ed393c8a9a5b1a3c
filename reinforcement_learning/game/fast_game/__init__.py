"""The same game of Neural MMO, played faster: observations, rewards, deaths and random numbers are equal bit for bit.

What a profile shows to be hot is done here for all agents at once, and straight into the buffer that the policy reads;
everything else is the game's own code. `tests/reinforcement_learning/game/test_fast_game.py` plays both side by side.
"""
