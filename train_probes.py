"""Measure what a policy's hidden state encodes, and whether it encodes more than the policy's input does.

    python train_probes.py activation_data/NAME
    python train_probes.py activation_data/A activation_data/B --targets self_health,self_food,hidden
    python train_probes.py activation_data/NAME_* --emergence           # checkpoints of one or several trainings
    python train_probes.py activation_data/NAME --given tick,self_row   # beyond what these targets explain
    python train_probes.py activation_data/NAME --targets future --given action     # plans: what the agent does next
    python train_probes.py activation_data/NAME --ray-address auto      # side by side on a Ray cluster

Record dumps with extract_activations.py --record standard.
Figures, tables, probes.json and directions.safetensors are written to analysis_results/RUN/; see docs/probes.md.
"""

import common.environment_check  # isort: skip  # noqa: F401 (must come first)

from activation_store.reader import read_metadata
from activation_store.schema import METADATA_FILE, DumpMetadata
from analysis.probes.inputs import recorded
from analysis.probes.settings import OBSERVATION_BYTES, RECORD_BYTES, SEEN_BYTES, ProbeSettings
from analysis.runs.record_limit import limited
from common import command_line
from common.files import sha256


def main() -> None:
    """Parse, check, probe, and print where the results are."""
    settings = command_line.parse(ProbeSettings, __doc__)
    settings.check()
    metadata = {folder.resolve().name: read_metadata(folder) for folder in settings.dumps}

    from analysis.probes.probe_run import check_dumps, probe_dumps, wanted_of
    from analysis.probes.probing import meet
    from analysis.runs.run_folder import RunFolder, plain

    check_dumps(settings, metadata)
    settings = thinned(settings, metadata)
    wanted = {
        name: wanted_of(settings, folder, dump)
        for folder, (name, dump) in zip(settings.dumps, metadata.items(), strict=True)
    }
    run = {
        "arguments": plain(settings),
        "seed": settings.seed,
        "input": {str(folder): sha256(folder / METADATA_FILE) for folder in settings.dumps},
    }
    if settings.ray_address is not None:
        meet(settings.ray_address)
    with RunFolder(settings.run_folder, run) as folder:
        probe_dumps(settings, metadata, wanted, folder)
    print(f"figures, tables and probes.json: {folder.path}")


def thinned(settings: ProbeSettings, metadata: dict[str, DumpMetadata]) -> ProbeSettings:
    """Return settings that keep so few records that the largest dump fits; all dumps are thinned alike."""
    folder = max(settings.dumps, key=lambda dump: metadata[dump.resolve().name].records)
    largest = metadata[folder.resolve().name]
    inputs = recorded(settings.requested, largest)
    seen = max((source.as_observations for source in inputs if not source.layers), default=0)
    return limited(settings, folder, largest, RECORD_BYTES + (seen > 0) * SEEN_BYTES + seen * OBSERVATION_BYTES)


if __name__ == "__main__":
    command_line.run(main)
