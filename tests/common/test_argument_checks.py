"""Checks of user input."""

from dataclasses import dataclass

import pytest

from common.argument_checks import SEEDS, at_least, between, check, did_you_mean, seed_value, split
from tests.command import assert_refuses

POLICIES = ("hybrid_3M", "masked_3M", "seeing_3M", "start_kit_3M", "takeru_3M", "yaofeng_3M")


@dataclass(frozen=True)
class Options:
    n_bins: int | None = 3
    seed: int = 0


def test_what_is_allowed_passes_and_names_are_split_at_commas() -> None:
    check(Options(), n_bins=between(3, 2, 5), seed=seed_value(0))
    check(Options(None, SEEDS - 1), n_bins=at_least(None, 2), seed=seed_value(SEEDS - 1))
    assert split(" a, b,,c ") == ("a", "b", "c") and split("") == split(None) == split(" , ") == ()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (Options(1), "--n-bins is 1: must be 2 or more"),
        (Options(10**20), "--n-bins is 100000000000000000000: must be 2 to 1000000000000000"),
        (Options(2, -1), "--seed is -1: must be 0 to 4294967295"),
        (Options(2, SEEDS), "--seed is 4294967296: must be 0 to 4294967295"),
    ],
)
def test_what_is_not_allowed_is_named_with_what_is(options: Options, message: str) -> None:
    assert_refuses(f"^{message}$", check, options, n_bins=at_least(options.n_bins, 2), seed=seed_value(options.seed))


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("takeru", "; did you mean takeru_3M?"),
        ("TAKERU_3m", "; did you mean takeru_3M?"),
        ("takeru_200M", "; did you mean takeru_3M?"),
        ("start_kit", "; did you mean start_kit_3M?"),
        ("yaofeng_3M.safetensors", "; did you mean yaofeng_3M?"),
        ("hunger", "; did you mean self_food?"),
        ("self_hp", "; did you mean self_health?"),
        ("Thirst", "; did you mean self_water?"),
        ("3M", "; did you mean hybrid_3M or masked_3M or seeing_3M?"),
        ("xyz", ""),
        ("", ""),
    ],
)
def test_at_most_three_near_names_are_suggested_and_everyday_words_lead_to_the_games(name: str, hint: str) -> None:
    assert did_you_mean(name, [*POLICIES, "tick", "self_health", "self_food", "self_water"]) == hint
