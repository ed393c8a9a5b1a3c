"""The program of each process in test_data_parallel.py: `torchrun one_of_several.py MODEL DUMP FOLDER`.

It writes the gradients of one batch that the processes share, and the loss.
"""

import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

from agent_zoo.data_parallel import join_processes
from tests.analysis.world_model.test_data_parallel import gradients


def main() -> None:
    model, dump, folder = map(Path, sys.argv[1:])
    processes = join_processes(torch.device("cpu"))
    save_file(gradients(model, dump, processes), folder / f"gradients_{processes.rank}.safetensors")
    processes.leave()


if __name__ == "__main__":
    main()
