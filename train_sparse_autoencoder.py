"""Write a policy's hidden states as sums of few features out of many, and test what that loses.

    python train_sparse_autoencoder.py activation_data/NAME --no-track
    python train_sparse_autoencoder.py activation_data/NAME --width 4x,8x --k 8,32 --kind topk,jumprelu
    python train_sparse_autoencoder.py activation_data/NAME --untrained         # the same for the untrained network
    python train_sparse_autoencoder.py activation_data/NAME --resume            # continue an interrupted run

Every autoencoder is tested on episodes that it was not fitted to, beside PCA, ICA and k-means with as many features in
a state, and by what the policy does with the reconstruction instead of its own state.
Record dumps with extract_activations.py --record standard.
Dictionaries, tables and figures are written to analysis_results/RUN/; see docs/sparse_features.md.
"""

import common.environment_check  # isort: skip  # noqa: F401 (must come first)

from activation_store.reader import read_metadata
from analysis.sparse.settings import SparseSettings
from common import command_line


def main() -> None:
    """Parse, check, fit and test, and print where the results are."""
    settings = command_line.parse(SparseSettings, __doc__, flag_pairs=True)
    settings.check()
    metadata = read_metadata(settings.dump)

    from analysis.sparse.sparse_run import check_dump, train_autoencoders

    recorded = check_dump(settings, metadata)
    folder = train_autoencoders(settings, metadata, recorded)
    print(f"dictionaries, tables and figures: {folder}")


if __name__ == "__main__":
    command_line.run(main)
