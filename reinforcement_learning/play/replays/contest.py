"""The policies and the world of a replay."""

import sys
from pathlib import Path

from common.user_error import one_line
from reinforcement_learning.device import pick_device
from reinforcement_learning.game.maps import ensure_maps
from reinforcement_learning.game.plain_world import without_training_aids
from reinforcement_learning.game.tasks import check_tasks
from reinforcement_learning.play.admission import admit_all, admit_fitting
from reinforcement_learning.play.contest import Contest, maps_of
from reinforcement_learning.play.entrants import load_entrants
from reinforcement_learning.settings import Settings
from reinforcement_learning.terminal import counted_progress


def replay_contest(folder: Path, name: str | None, settings: Settings) -> Contest:
    """Load the policies of a folder that fit the world, or the one with that name; name the others on standard error.

    Raises:
        UserError: there is no policy, or none fits, or the requested one does not fit.
    """
    device, env = pick_device(settings.train.device), without_training_aids(settings.env)
    entrants = load_entrants(folder, () if name is None else (name,))
    check_tasks(settings.task, env)
    with counted_progress("generating maps", "maps") as progress:
        maps = ensure_maps(env, progress, maps_of(env, [settings.train.seed], 1))
    admitted = (admit_all if name else admit_fitting)(entrants, env, settings.task, maps)
    for reason in admitted.left_out:
        print(f"left out: {one_line(reason)}", file=sys.stderr)
    return Contest(admitted.entrants, env, admitted.tasks, maps, device)
