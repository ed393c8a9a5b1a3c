"""The world that a dump was recorded in, to play its episodes again, and ticks of it drawn at random."""

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

import numpy as np
import torch

from activation_store.reader import read_dump
from activation_store.schema import DumpMetadata, refuse_kept_memory
from activation_store.selection import CAN_BE_LEFT_OUT
from agent_zoo.checkpoint_files import policy_names, policy_path
from common.user_error import UserError
from reinforcement_learning.game.maps import ensure_maps
from reinforcement_learning.play.branches import BranchPoint
from reinforcement_learning.play.contest import Contest, Group, maps_of_group
from reinforcement_learning.play.entrants import load_entrant
from reinforcement_learning.settings import EnvironmentSettings, TaskSettings


def recorded_contest(
    folder: Path, metadata: DumpMetadata, policies: Path, maps: Path, episodes: Sequence[int]
) -> Contest:
    """Return the policy of a dump in its world, with the maps of some episodes.

    Args:
        maps: parent folder of maps; those that are missing are generated.

    Raises:
        UserError: the dump was not played by one policy alone and unedited, or the policy is not in the folder, or it
            is another one than played.
    """
    environment = metadata.environment
    if (
        metadata.seed is None
        or metadata.origin != "game"
        or "intervention" in environment
        or environment.get("opponents")
    ):
        raise UserError(
            f"{folder} cannot be played again: give a dump of one policy alone, from extract_activations.py pve"
        )
    refuse_kept_memory(folder, metadata)
    policy_names(policies, (metadata.policy,))
    entrant = load_entrant(policy_path(policies, metadata.policy))
    if entrant.sha256 != metadata.checkpoint_sha256:
        raise UserError(
            f"{folder} was recorded from a policy with hash {str(metadata.checkpoint_sha256)[:12]}, but "
            f"{metadata.policy} in {policies} has {str(entrant.sha256)[:12]}: give the folder that it came from with "
            "--policies-dir"
        )
    world = {field.name: environment[field.name] for field in fields(EnvironmentSettings) if field.name in environment}
    env = EnvironmentSettings(**{**world, "maps_dir": maps})
    task = TaskSettings(**environment["task"])
    folder_of_maps = ensure_maps(env, numbers=maps_of_group(env, Group(metadata.seed, tuple(episodes))))
    random_actions = float(environment.get("random_actions", 0))
    return Contest((entrant,), env, task, folder_of_maps, torch.device("cpu"), random_actions)


def drawn_points(folder: Path, episodes: Sequence[int], number: int, before: int, seed: int) -> list[BranchPoint]:
    """Draw ticks of a dump at random, each as often as it has records, but none twice.

    Args:
        before: ticks that a life must have had before.

    Raises:
        UserError: the episodes have fewer such ticks.
    """
    records = read_dump(folder, episodes=episodes, layers=(), columns=(), leave_out=CAN_BE_LEFT_OUT)
    late = records.step >= before
    moments, counts = np.unique(np.stack([records.episode, records.step], axis=1)[late], axis=0, return_counts=True)
    if len(moments) < number:
        raise UserError(f"{folder} has only {len(moments)} ticks to branch from, not {number}: ask for fewer branches")
    random = np.random.default_rng(seed)
    chosen = random.choice(moments, number, replace=False, p=counts / counts.sum(), axis=0)
    return [BranchPoint(int(episode), int(tick)) for episode, tick in chosen]
