"""Attribute what a policy values, does or remembers to each part of what it saw and of its memory.

    python saliency.py activation_data/NAME                                    # what the value depends on
    python saliency.py activation_data/NAME --of Move.Direction:north-south --method integrated
    python saliency.py activation_data/NAME --of direction:self_food --directions RUN/directions.safetensors --lags 30
    python saliency.py activation_data/NAME --method occlusion --film --sample-ids 0,3 --combine-samples
    python saliency.py activation_data/NAME --clusters analysis_results/NAME-lstm_cell-dynamics

Record the dump with extract_activations.py --record standard. saliency.html, figures, maps and summary.txt are
written to analysis_results/RUN/; see docs/saliency.md. Maps are checked by default, and marked where a check fails.
After an interruption, the same command goes on where it stopped.
"""

import common.environment_check  # isort: skip  # noqa: F401 (must come first)

from activation_store.reader import read_metadata
from analysis.attribution.settings import SaliencySettings
from common import command_line


def main() -> None:
    """Parse, check, attribute, and print where the results are."""
    settings = command_line.parse(SaliencySettings, __doc__)
    settings.check()
    metadata = read_metadata(settings.dump)

    from analysis.attribution.saliency_run import attribute_dump, check_before
    from analysis.dynamics.tracks import load_policy_of
    from analysis.runs.run_folder import RunFolder, description

    policy, info = load_policy_of(metadata, settings.dump, settings.policy, settings.policies_dir)
    policy.requires_grad_(False)
    check_before(settings, policy, info.layout)
    with RunFolder(settings.run_folder, description(settings, settings.dump, metadata)) as folder:
        attribute_dump(settings, metadata, policy, info, folder)
    print(f"saliency.html, maps and figures: {folder.path}")


if __name__ == "__main__":
    command_line.run(main)
