"""Train a generative model of a policy and its world together, on the policy's recorded lives.

    python train_world_model.py activation_data/NAME --no-track
    python train_world_model.py activation_data/NAME --bottleneck gaussian --name gaussian
    python train_world_model.py activation_data/NAME --resume       # continue an interrupted training

The model sees three ticks of a life, and predicts the following ones: tiles, entities, the agent's own row, inventory,
legal actions, rewards and the end of the life. The policy itself is inside, frozen: it reads what the model predicts.
The market is left out. A quarter of the maps are kept for testing.

Record dumps with extract_activations.py --record standard.
The model, metrics.jsonl and curves are written to world_models/NAME/; see docs/world_model.md.
"""

import common.environment_check  # isort: skip  # noqa: F401 (must come first)

from analysis.world_model.options import WorldSettings
from common import command_line


def main() -> None:
    """Parse, check, train, and print where the model is."""
    settings = command_line.parse(WorldSettings, __doc__, flag_pairs=True)
    settings.check()

    from analysis.world_model.training import check_material, train_world_model

    print(f"world model and curves: {train_world_model(settings, *check_material(settings)).parent}")


if __name__ == "__main__":
    command_line.run(main)
