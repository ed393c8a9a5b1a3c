"""Options of the original repository's scripts that have another name here, or no meaning: what to use instead."""

from collections.abc import Mapping, Sequence

from common.user_error import UserError

_LEAVE_OUT = "leave it out: "
TRAIN: Mapping[str, str] = {
    "--train.total-timesteps": "--train.total-agent-steps",
    "--train.anneal-lr": "--train.anneal-learning-rate",
    "--train.no-anneal-lr": "--train.no-anneal-learning-rate",
    "--train.norm-adv": "--train.normalize-advantage",
    "--train.no-norm-adv": "--train.no-normalize-advantage",
    "--train.clip-coef": "--train.clip-coefficient",
    "--train.clip-vloss": "--train.clip-value",
    "--train.no-clip-vloss": "--train.no-clip-value",
    "--train.vf-clip-coef": "--train.value-clip",
    "--train.ent-coef": "--train.entropy-coefficient",
    "--train.vf-coef": "--train.value-coefficient",
    "--train.max-grad-norm": "--train.max-gradient-norm",
    "--train.batch-rows": "--train.minibatch-rows",
    "--train.num-envs": "--rollout.num-envs",
    "--train.envs-per-worker": "--rollout.num-workers",
    "--train.data-dir": "--runs-dir",
    "--train.envs-per-batch": _LEAVE_OUT + "worlds play in two groups by turns",
    "--train.env-pool": _LEAVE_OUT + "worlds play in two groups by turns",
    "--train.no-env-pool": _LEAVE_OUT + "worlds play in two groups by turns",
    "--train.torch-deterministic": _LEAVE_OUT + "runs on a CPU can be repeated bit for bit",
    "--train.no-torch-deterministic": _LEAVE_OUT + "runs on a CPU can be repeated bit for bit",
    "--train.compile": _LEAVE_OUT + "networks are not compiled",
    "--train.compile-mode": _LEAVE_OUT + "networks are not compiled",
    "--train.verbose": _LEAVE_OUT + "progress is always shown",
    "--train.no-verbose": _LEAVE_OUT + "progress is always shown",
    "--env.max-episode-length": "--env.horizon",
    "--env.maps-path": "--env.maps-dir",
    "--env.map-force-generation": _LEAVE_OUT + "maps are generated if they are not there",
    "--env.no-map-force-generation": _LEAVE_OUT + "maps are generated if they are not there",
    "--env.task-size": "--task.embedding-size",
    "--policy.task-size": "--task.embedding-size",
    "--policy.input-size": "--policy.hidden-size",
    "--recurrent.input-size": "--policy.hidden-size",
    "--recurrent.hidden-size": "--policy.hidden-size",
    "--recurrent.num-layers": "--policy.lstm-layers",
    "--reward-wrapper.heal-bonus-weight": "--reward.heal",
    "--reward-wrapper.explore-bonus-weight": "--reward.explore",
    "--reward-wrapper.hp-bonus-weight": "--reward.hp",
    "--reward-wrapper.exp-bonus-weight": "--reward.experience",
    "--reward-wrapper.defense-bonus-weight": "--reward.defence",
    "--reward-wrapper.attack-bonus-weight": "--reward.attack",
    "--reward-wrapper.gold-bonus-weight": "--reward.gold",
    "--reward-wrapper.custom-bonus-scale": "--reward.scale",
    "--reward-wrapper.disable-give": "--reward.disable-give",
    "--reward-wrapper.no-disable-give": "--reward.no-disable-give",
    "--reward-wrapper.donot-attack-dangerous-npc": "--reward.spare-dangerous-npcs",
    "--reward-wrapper.no-donot-attack-dangerous-npc": "--reward.no-spare-dangerous-npcs",
    "--reward-wrapper.early-stop-agent-num": "--env.early-stop-agents",
    "--reward-wrapper.no-use-custom-reward": "--reward.bonus-coef 0",
    "--reward-wrapper.use-custom-reward": _LEAVE_OUT + "agents are paid their own reward",
    "--reward-wrapper.eval-mode": _LEAVE_OUT + "evaluate.py evaluates",
    "--reward-wrapper.clip-unique-event": _LEAVE_OUT + "at most 3 events a tick are paid",
    "--reward-wrapper.randomize-spawn-immunity": "--env.spawn-immunity",
}
"""Options of train.py."""

EVALUATE: Mapping[str, str] = {"--debug": "-n 4 and a small world, such as --env.map-size 32 --env.num-agents 16"}
"""Options of evaluate.py."""


def refuse(arguments: Sequence[str], replaced: Mapping[str, str]) -> None:
    """Refuse options that only the original has.

    Args:
        replaced: option of the original -> what to use instead.

    Raises:
        UserError: one is among the arguments; says what to use instead.
    """
    for argument in arguments:
        option = argument.partition("=")[0].replace("_", "-")
        if option in replaced:
            instead = replaced[option]
            use = instead if instead.startswith(_LEAVE_OUT) else f"use {instead}"
            raise UserError(f"{option} is an option of the original repository; {use}")
