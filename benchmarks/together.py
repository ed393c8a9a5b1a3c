"""Speed of `train.py --processes N`, as its users run it."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import orjson
import yaml

from common.files import write_text
from common.user_error import UserError
from reinforcement_learning.settings import Settings, plain_settings
from reinforcement_learning.training.run_folder import METRICS_FILE

REST = "rest"
"""The phase of everything that no other phase counts, such as waiting for another process."""


def train_together(agent: str, settings: Settings, updates: int) -> dict[str, float]:
    """Train in `train.processes` processes, and return wall-clock seconds of each phase per agent-step.

    The first update is left out. Phases are those of the first process; agent-steps are those of all.

    Raises:
        UserError: the run failed.
    """
    steps = settings.train.batch_size * (updates + 1)
    settings = replace(settings, train=replace(settings.train, total_agent_steps=steps, num_checkpoints=1))
    with TemporaryDirectory() as name:
        folder = Path(name)
        config, policies, runs = (folder / path for path in ("config.yaml", "policies", "runs"))
        write_text(config, yaml.safe_dump(plain_settings(settings)))
        command = [sys.executable, "train.py", "-a", agent, "-n", "together", "--no-track", "--config", str(config)]
        where = ["--policies-dir", str(policies), "--runs-dir", str(runs)]
        result = subprocess.run([*command, *where], capture_output=True, text=True, check=False)
        if result.returncode:
            raise UserError(f"train.py --processes {settings.train.processes} failed: {result.stderr.strip()}")
        return _phases((runs / "together" / METRICS_FILE).read_bytes())


def _phases(metrics: bytes) -> dict[str, float]:
    """Return seconds of each phase per agent-step, from the second update on."""
    before, *lines = [orjson.loads(line) for line in metrics.splitlines()]
    steps = lines[-1]["agent_steps"] - before["agent_steps"]
    phases = {REST: 0.0}
    for line in lines:
        seconds = (line["agent_steps"] - before["agent_steps"]) / line["agent_steps_per_second"]
        shares = {name.removeprefix("time/"): share for name, share in line.items() if name.startswith("time/")}
        for phase, share in (shares | {REST: 1 - sum(shares.values())}).items():
            phases[phase] = phases.get(phase, 0.0) + share * seconds / steps
        before = line
    return phases
