"""The random numbers behind actions: Philox as published, another one for each agent, head, tick and episode."""

import numpy as np

from reinforcement_learning.play.stepper import RANDOM_ACTIONS, Moment, action_noise

WORD = 2**64


def philox(counter: list[int], key: list[int]) -> list[int]:
    """Philox4x64-10 in plain integers, from section 4.3 of Salmon et al. 2011."""
    for _ in range(10):
        high0, low0 = divmod(counter[0] * 0xD2E7470EE14C6C93, WORD)
        high1, low1 = divmod(counter[2] * 0xCA5A826395121157, WORD)
        counter = [high1 ^ counter[1] ^ key[0], low1, high0 ^ counter[3] ^ key[1], low0]
        key = [(key[0] + 0x9E3779B97F4A7C15) % WORD, (key[1] + 0xBB67AE8584CAA73B) % WORD]
    return counter


def test_the_numbers_are_those_of_philox_for_their_own_world_tick_agent_and_head() -> None:
    # The first known answer that its authors publish for this generator.
    assert philox([0] * 4, [0] * 2) == [
        0x16554D9ECA36314C, 0xDB20FE9D672D0FDC, 0xD7E772CEE186176B, 0x7E68B68AEC7BA23B
    ]  # fmt: skip
    words = [word for block in (1, 2, 3) for word in philox([block, 7, 5, 0], [4_000_000_000, 0])]
    expected = np.array([(word >> 11) / 2**53 for word in words]).reshape(4, 3)
    assert np.array_equal(action_noise([Moment(4_000_000_000, 5, 7)], agents=4, heads=3), expected)
    moment = Moment(first_seed=3, number=1, tick=9)
    alone = action_noise([moment], agents=16, heads=12)
    assert np.array_equal(action_noise([Moment(8, 0, 2), moment], agents=16, heads=12)[16:], alone)
    assert np.array_equal(action_noise([moment], agents=128, heads=12)[:16], alone)
    others = [Moment(4, 1, 9), Moment(3, 2, 9), Moment(3, 1, 10), Moment(3, 9, 1), Moment(1, 3, 9)]
    tables = [alone, *(action_noise([other], agents=16, heads=12) for other in others)]
    tables.append(action_noise([moment], agents=16, heads=12, stream=RANDOM_ACTIONS))
    assert len(np.unique(tables)) == 7 * 16 * 12
