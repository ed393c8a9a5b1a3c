"""What each process does in test_data_parallel.py: `torchrun one_of_several.py FOLDER MAPS_DIR`.

It writes, for its rank, the gradients of one minibatch of which it holds a part, and the files of a whole training in
which every process writes as if it led.
"""

import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

from reinforcement_learning.game.maps import ensure_maps
from reinforcement_learning.training.data_parallel import join_processes
from reinforcement_learning.training.stop_signal import StopSignal
from reinforcement_learning.training.tracking import NoTracker
from reinforcement_learning.training.trainer import Reports, train
from tests.conftest import AGENT
from tests.reinforcement_learning.training.test_data_parallel import first_update, part_of, played, run_in, settings_in


def main() -> None:
    folder, maps_dir = map(Path, sys.argv[1:])
    settings = settings_in(maps_dir)
    maps = ensure_maps(settings.env)
    processes = join_processes(torch.device("cpu"))
    rank = processes.rank

    policy, rollout = played(settings, maps)
    gradients, losses = first_update(policy, part_of(rollout, rank), settings, processes)
    save_file({**gradients, **losses}, folder / f"gradients_{rank}.safetensors")

    processes.leads = True
    silent = Reports(on_update=lambda _: None, on_progress=lambda _: None)
    run = run_in(folder / f"rank{rank}")
    train("together", AGENT, settings, maps, run, NoTracker(), silent, StopSignal(), processes=processes)
    processes.leave()


if __name__ == "__main__":
    main()
