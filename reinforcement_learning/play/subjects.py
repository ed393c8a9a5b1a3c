"""Load the policies to record, trained or as training checkpoints, and choose the world in which each plays."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from activation_store.layers import UNTRAINED
from activation_store.recording import RECORDINGS, expected_record_bytes
from agent_zoo.checkpoint_files import find_checkpoints, policy_path
from agent_zoo.data_parallel import pick_device
from common.argument_checks import MOST_MAP_SEED
from common.files import free_bytes
from common.user_error import UserError
from reinforcement_learning.game.maps import ensure_maps, maps_folder
from reinforcement_learning.game.tasks import check_tasks
from reinforcement_learning.play.contest import Contest
from reinforcement_learning.play.entrants import (
    Entrant,
    load_entrant,
    shadow_layers,
    shared_tasks,
    untrained_entrant,
    untrained_twin,
    with_embeddings,
    with_own_tasks,
    with_shadow_networks,
)
from reinforcement_learning.play.extraction import RecordingPlan, metadata_of
from reinforcement_learning.run_settings import Mode, Protocol, original_rules, without_training_aids
from reinforcement_learning.settings import EnvironmentSettings, Settings, TaskSettings

Checkpoint = int | Literal["all", "trained"]
"""A checkpoint by agent-steps, all checkpoints, or the trained policy itself."""

SMOKE_TEST_AGENT = "neurips23_start_kit"


@dataclass(frozen=True, kw_only=True)
class Subjects:
    """The policies to record, and their tasks."""

    names: tuple[str, ...]
    policies_dir: Path  # folder of trained policies
    maps_dir: Path  # folder of generated maps
    embeddings_dir: Path  # cache folder for task embeddings computed by language models
    runs_dir: Path = Path("runs")  # folder of training runs with checkpoints
    mode: Mode = "pve"  # pvp, all play in one world; pve, each plays all agents of its own world
    checkpoint: Checkpoint = "trained"  # which of each policy's checkpoints
    untrained_twin: bool | Literal["of memories"] = False
    """Record a network with fresh weights beside each, or beside each that has a memory."""
    shadow_steps: tuple[int | None, ...] = ()  # agent-steps of checkpoints to record beside each; None stands for all
    curriculum: str | None = None  # tasks that agents are given; None takes the policy's own
    task: str | None = None  # given to everyone; None draws from the curriculum
    map_seed: int | None = None  # of the maps; None gives maps that none of the policies was trained on
    food_regrowth: float | None = None
    """How fast eaten food grows back, as in `EnvironmentSettings`; None for as in training."""
    random_actions: float = 0  # probability that an agent acts at random in a tick
    embeddings: str | None = None
    """File of task embeddings for the policies that were trained on one; None for the one they name."""
    protocol: Protocol = "toolkit"
    """As in `Contest`; the original one brings its maps, and the held-out tasks unless others are named."""


def contests(subjects: Subjects, seed: int, device_name: str) -> list[Contest]:
    """Load the policies and decide who shares a world: the first one's training world, by default on other maps.

    The maps are not made yet: see `contest.make_maps`.

    Args:
        seed: of the weights of untrained twins.

    Raises:
        UserError: a policy or checkpoint is missing, or only one policy is given to share a world.
    """
    device = pick_device(device_name)
    loaded = _load(subjects, seed)
    entrants = [with_embeddings(entrant, subjects.embeddings, subjects.embeddings_dir) for entrant in loaded]
    if subjects.mode == "pvp" and len(entrants) < 2:
        raise UserError(f"pvp needs at least two policies, not {entrants[0].name} alone: add one to -p, or use pve")
    planned = []
    for together in [entrants] if subjects.mode == "pvp" else [[entrant] for entrant in entrants]:
        used = max(entrant.info.environment.get("map_seed", 0) for entrant in together)
        unseen = (used + 1) % (MOST_MAP_SEED + 1)
        changed = {
            "maps_dir": subjects.maps_dir,
            "map_seed": unseen if subjects.map_seed is None else subjects.map_seed,
            **({} if subjects.food_regrowth is None else {"food_regrowth": subjects.food_regrowth}),
            **(original_rules(subjects.mode) if subjects.protocol == "original" else {}),
        }
        env = without_training_aids(EnvironmentSettings(**{**together[0].info.environment, **changed}))
        given = {**together[0].info.task, "embeddings_dir": subjects.embeddings_dir}
        if chosen := subjects.curriculum or ("evaluation" if subjects.protocol == "original" else None):
            given |= {"curriculum": chosen, "only": None}
        if subjects.task is not None:
            given |= {"only": subjects.task}
        task = shared_tasks(together, TaskSettings(**given))
        check_tasks(task, env)
        ready = with_own_tasks(together, task, env)
        planned.append(Contest(ready, env, task, maps_folder(env), device, subjects.random_actions, subjects.protocol))
    return planned


def smoke_test_contest(seed: int, maps_dir: Path, device_name: str) -> Contest:
    """Return an untrained policy in a small world that needs no existing files."""
    env = without_training_aids(
        EnvironmentSettings(num_agents=8, num_npcs=8, map_size=32, num_maps=2, maps_dir=maps_dir)
    )
    settings, maps = Settings(env=env), ensure_maps(env)
    entrant = untrained_entrant(SMOKE_TEST_AGENT, settings, maps, seed)
    return Contest((entrant,), env, settings.task, maps, pick_device(device_name))


def expected_size(contest: Contest, plan: RecordingPlan, output: Path) -> str:
    """Describe the maximum size of a contest's dumps, with a warning if the disk may be too small."""
    record_bytes = max(expected_record_bytes(metadata_of(contest, entrant, plan)) for entrant in contest.entrants)
    most = _most_records(contest, plan)
    size, free = most * record_bytes, free_bytes(output)
    names = ", ".join(entrant.name for entrant in contest.entrants)
    text = (
        f"{names}: at most {most:,} records of about {record_bytes:,} bytes, {size / 1e9:.1f} GB, "
        f"if every agent lived to the end; {free / 1e9:.1f} GB are free"
    )
    if size > free:
        text += "\nthe disk may fill up: the finished episodes are then kept, and --resume continues"
    return text


def other_sizes(contest: Contest, plan: RecordingPlan, twin_in_all: bool) -> str:
    """Describe the maximum size of the same episodes for each name of `--record`, so that one can be chosen.

    Args:
        twin_in_all: whether the untrained network is recorded whatever the name.
    """
    sizes = []
    for name, recording in RECORDINGS.items():
        precision = "float32" if recording.format == "json" else plan.precision  # JSON holds no other
        as_named = replace(
            plan, layers=recording.layers, fields=recording.fields, format=recording.format, precision=precision
        )
        record_bytes = 0
        for entrant in contest.entrants:
            metadata = metadata_of(contest, entrant, as_named)
            of_twin = shadow_layers(UNTRAINED, entrant.policy) if entrant.policy.layers else ()
            layers = {layer: units for layer, units in metadata.layers.items() if layer not in of_twin}
            if twin_in_all or recording.untrained_twin:
                layers |= dict.fromkeys(of_twin, entrant.policy.policy.hidden_size)
            record_bytes = max(record_bytes, expected_record_bytes(replace(metadata, layers=layers)))
        sizes.append(f"{name} {_most_records(contest, plan) * record_bytes / 1e9:.1f} GB")
    return f"at most, for these episodes, with --record: {', '.join(sizes)}"


def _most_records(contest: Contest, plan: RecordingPlan) -> int:
    return contest.env.num_agents * min(contest.env.horizon, plan.most_ticks or contest.env.horizon) * plan.episodes


def _load(subjects: Subjects, seed: int) -> list[Entrant]:
    if subjects.checkpoint == "trained":
        paths = {name: [policy_path(subjects.policies_dir, name)] for name in subjects.names}
    else:
        steps = subjects.checkpoint if isinstance(subjects.checkpoint, int) else None
        paths = {name: find_checkpoints(_checkpoint_folders(subjects, name), name, steps) for name in subjects.names}
    return [
        _watched(load_entrant(path), name, subjects, seed)
        for name, policy_paths in paths.items()
        for path in policy_paths
    ]


def _checkpoint_folders(subjects: Subjects, name: str) -> list[Path]:
    return [subjects.policies_dir / "checkpoints", subjects.runs_dir / name / "checkpoints"]


def _watched(entrant: Entrant, name: str, subjects: Subjects, seed: int) -> Entrant:
    """Attach the requested shadow networks to an entrant; `name` is that of its training."""
    twin = bool(entrant.policy.layers) if subjects.untrained_twin == "of memories" else subjects.untrained_twin
    shadow_networks = [untrained_twin(entrant, seed)] if twin else []
    for steps in subjects.shadow_steps:
        loaded = map(load_entrant, find_checkpoints(_checkpoint_folders(subjects, name), name, steps))
        shadow_networks += [replace(checkpoint, name=f"steps_{checkpoint.info.steps}") for checkpoint in loaded]
    return with_shadow_networks(entrant, tuple(shadow_networks))
