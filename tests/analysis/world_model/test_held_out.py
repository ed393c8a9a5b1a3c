"""Which episodes of a dump are on maps that a world model has not seen."""

from dataclasses import replace

from activation_store.schema import METADATA_FILE
from analysis.world_model.held_out import HeldOut
from analysis.world_model.windows import maps_of_episodes
from common.files import sha256
from tests.command import assert_refuses


def test_the_training_dump_keeps_its_own_split(recorded, model) -> None:
    origin = recorded.origin(sha256(recorded.dump / METADATA_FILE))
    assert HeldOut.of(model, origin, recorded.dump).origin is origin


def test_episodes_on_other_maps_of_another_dump_are_new(recorded, model) -> None:
    maps = maps_of_episodes(recorded.metadata)
    origin = recorded.origin()
    found = HeldOut.of(model, origin, recorded.dump).origin
    assert found.test == tuple(episode for episode, number in maps.items() if number not in origin.train_maps)
    assert found.test and set(found.test) < set(maps) and not found.train
    assert (found.dump, found.dump_sha256) == (recorded.dump.name, sha256(recorded.dump / METADATA_FILE))


def test_maps_of_another_seed_or_size_are_all_new(recorded, model) -> None:
    seed, size = recorded.origin().world
    for world in ((seed + 1, size), (seed, size * 2)):
        found = HeldOut.of(model, replace(recorded.origin(), world=world), recorded.dump).origin
        assert found.test == tuple(maps_of_episodes(recorded.metadata))


def test_dumps_that_do_not_fit_are_refused(recorded, model, monkeypatch) -> None:
    every = tuple(sorted(number for number in maps_of_episodes(recorded.metadata).values() if number is not None))
    origin = recorded.origin()
    for metadata, of, says in (
        (recorded.metadata, replace(origin, train_maps=every), "no episode on a map"),
        (recorded.metadata, replace(origin, policy_sha256="b" * 64), "give a dump of that policy"),
        (replace(recorded.metadata, layers={"lstm_hidden": 16}), origin, "lacks layer"),
        (replace(recorded.metadata, origin="simulated", world_model_sha256="c" * 64), origin, "simulated lives"),
    ):
        monkeypatch.setattr("analysis.world_model.held_out.read_metadata", lambda _, own=metadata: own)
        assert_refuses(says, HeldOut.of, model, of, recorded.dump)
