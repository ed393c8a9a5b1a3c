"""A small real dump, its policy, and its windows."""

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from activation_store.reader import read_metadata
from activation_store.schema import DumpMetadata
from agent_zoo.base import RecurrentPolicy
from agent_zoo.checkpoint import CheckpointInfo, load_checkpoint
from analysis.world_model.held_out import HeldOut
from analysis.world_model.imagination import Start, informed_start
from analysis.world_model.model import Origin, WorldModel, build, measure
from analysis.world_model.network import Bottleneck, Sizes
from analysis.world_model.windows import Windows, maps_of, read_windows, split_maps, world_of
from common.files import sha256
from tests.recorded_features import RecordedFeatures, recorded_features

SMALL = Sizes(hidden=16, groups=4, classes=4, embedding=16, bottleneck=8, channels=4)
HORIZON = 4


@dataclass(frozen=True)
class Recorded:
    """A dump, the folder of its policy, and what they hold."""

    dump: Path
    policies: Path
    policy: RecurrentPolicy
    info: CheckpointInfo
    sha256: str
    metadata: DumpMetadata
    train: tuple[int, ...]
    test: tuple[int, ...]

    def windows(self, batch: int = 8, seed: int = 0, horizon: int = HORIZON) -> list[Windows]:
        return list(read_windows(self.dump, self.train, horizon, batch, self.policy, self.info, seed))

    def origin(self, dump_sha256: str = "a" * 64) -> Origin:
        about = ("small", dump_sha256, "small", self.sha256, 0, HORIZON, 10)
        maps = maps_of(self.metadata, self.train)
        return Origin(*about, self.train, self.test, world_of(self.metadata), maps)

    def held_out(self, model: WorldModel) -> HeldOut:
        return HeldOut(model, self.origin(), self.dump)

    def model(self, kind: Bottleneck = "sphere", seed: int = 0) -> WorldModel:
        """Return a new model, whose weights are the same whatever other tests drew before."""
        torch.manual_seed(seed)
        stats = measure(self.windows()[:6], self.info.layout)
        return build(self.policy, self.info, stats, SMALL, kind)


@pytest.fixture(scope="module")
def model(recorded: Recorded) -> WorldModel:
    return recorded.model()


@pytest.fixture(scope="module")
def start(model: WorldModel, recorded: Recorded) -> Start:
    with torch.no_grad():
        return informed_start(model, recorded.windows()[0], torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def recorded(small_world, task, maps, tmp_path_factory) -> Recorded:
    return recorded_of(recorded_features(tmp_path_factory, small_world, task, maps))


@pytest.fixture(scope="module")
def recorded_two_layers(small_world, task, maps, tmp_path_factory) -> Recorded:
    """Of a policy whose LSTM has two layers."""
    return recorded_of(recorded_features(tmp_path_factory, small_world, task, maps, "yaofeng"))


def recorded_of(result: RecordedFeatures) -> Recorded:
    (path,) = result.policies.glob("*.safetensors")
    policy, info = load_checkpoint(path)
    metadata = read_metadata(result.dump)
    split = split_maps(result.dump, metadata, seed=0)
    return Recorded(result.dump, result.policies, policy, info, sha256(path), metadata, *split)
