"""The program of each process in test_data_parallel.py: `torchrun one_of_several.py FOLDER MAPS_DIR`.

It writes, for its rank, the gradients of one minibatch of which it holds a part, and the files of three training runs
in which every process writes as if it were the leader: a complete one, another with several minibatches per update, and
the latter stopped and resumed.
"""

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from agent_zoo.data_parallel import join_processes
from reinforcement_learning.game.maps import ensure_maps
from reinforcement_learning.processes import StopSignal
from reinforcement_learning.training.run_folder import TrainingFolder, TrainingState
from reinforcement_learning.training.trainer import Session, train
from tests.conftest import AGENT
from tests.reinforcement_learning.training.test_data_parallel import (
    first_update,
    part_of,
    played,
    run_in,
    settings_in,
    with_codes,
)
from tests.reinforcement_learning.training.test_resume import StopAfter


def main() -> None:
    folder, maps_dir = map(Path, sys.argv[1:])
    settings = settings_in(maps_dir)
    maps = ensure_maps(settings.env)
    processes = join_processes(torch.device("cpu"))
    rank = processes.rank

    policy, rollout = played(settings, maps)
    gradients, losses = first_update(policy, part_of(rollout, rank), settings, processes)
    save_file({**gradients, **losses}, folder / f"gradients_{rank}.safetensors")
    codes = with_codes(settings)
    policy, rollout = played(codes, maps)
    gradients, losses = first_update(policy, part_of(rollout, rank), codes, processes)
    save_file({**gradients, **losses}, folder / f"codebook_{rank}.safetensors")

    processes.leads = True
    TrainingFolder.draw_curves = lambda _: None  # as the fixture `without_curves`

    def session(name: str, **others: Any) -> Session:
        return Session(run_in(folder / f"{name}{rank}"), processes=processes, **others)

    train("together", AGENT, settings, maps, session("rank"))

    codes = replace(codes, train=replace(codes.train, total_agent_steps=3_072))
    train("codes", AGENT, codes, maps, session("codes"))

    # Several minibatches an update, and a third update: in the second one agents have died, and not equally many.
    several = replace(settings, train=replace(settings.train, minibatch_rows=16, total_agent_steps=3_072))
    train("straight", AGENT, several, maps, session("straight"))
    stop = StopAfter(2)
    resumed = session("resumed", stop=stop, on_update=stop.count)
    train("resumed", AGENT, several, maps, resumed)
    state = TrainingState.load(resumed.run.state_path)
    state.save(folder / f"stopped_{rank}.safetensors")
    train("resumed", AGENT, several, maps, replace(resumed, stop=StopSignal(), on_update=lambda _: None), state)
    processes.leave()


if __name__ == "__main__":
    main()
    # All is written and the processes have parted. A thread of torch's that is still running when Python unloads can
    # abort the process ("terminate called without an active exception"), which is not what is tested here.
    sys.stdout.flush()
    os._exit(0)
