"""Analyse how a policy's memory moves: components of its states, behaviours, Jacobians, time constants.

    python analyze_dynamics.py activation_data/NAME
    python analyze_dynamics.py activation_data/NAME --layer lstm_hidden --features extended
    python analyze_dynamics.py activation_data/NAME --policy runs/NAME/checkpoints/NAME_0003000000.safetensors
    python analyze_dynamics.py activation_data/NAME-simulated --layer world_hidden --components 128 --clusters 128
    python analyze_dynamics.py activation_data/NAME-simulated --behaviours-of lstm_hidden,world_hidden --reach 12
    python analyze_dynamics.py activation_data/NAME --circuit goal_north --directions RUN/directions.safetensors

Record the dump with extract_activations.py --record standard. Figures,
tables, summary.txt, directions.safetensors and report.html are written to analysis_results/RUN/; see docs/dynamics.md.
After an interruption, the same command goes on where it stopped.
"""

import common.environment_check  # isort: skip  # noqa: F401 (must come first)

from activation_store.reader import read_metadata
from analysis.clusters.settings import BYTES_A_RECORD
from analysis.dynamics.settings import DynamicsSettings
from analysis.runs.record_limit import limited
from common import command_line


def main() -> None:
    """Parse, check, analyse, and print where the results are."""
    settings = command_line.parse(DynamicsSettings, __doc__)
    settings.check()
    metadata = read_metadata(settings.dump)
    if not settings.circuit:  # which reads whole lives alone
        settings = limited(settings, settings.dump, metadata, BYTES_A_RECORD)
    settings.check_against(metadata)

    from analysis.dynamics.dynamics_run import analyse
    from analysis.dynamics.tracks import check_lengths, load_policy_of
    from analysis.features import features_named, with_heads_of
    from analysis.runs.run_folder import RunFolder, description
    from common.argument_checks import split

    features = with_heads_of(metadata, features_named(split(settings.features)))
    loaded = None
    if settings.of_memory or settings.circuit:
        loaded = load_policy_of(metadata, settings.dump, settings.policy, settings.policies_dir)
        if not settings.circuit:  # which follows one stretch of each life, and says itself if none is long enough
            check_lengths(settings.dump, settings.lives, settings.seed, settings.reach, settings.lags)
    with RunFolder(settings.run_folder, description(settings, settings.dump, metadata)) as folder:
        if settings.circuit and loaded is not None:
            from analysis.dynamics.circuit_run import trace_circuit

            trace_circuit(settings, metadata, *loaded, folder)
        else:
            analyse(settings, metadata, features, loaded, folder)
    print(f"figures, tables and report.html: {folder.path}")


if __name__ == "__main__":
    command_line.run(main)
