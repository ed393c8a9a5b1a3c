"""Metadata say whether lives were played or simulated; those of played ones look as they always did."""

from dataclasses import replace

from activation_store.schema import DumpMetadata
from tests.command import assert_refuses
from tests.planted import planted_metadata


def test_metadata_of_played_lives_have_no_further_keys() -> None:
    content = planted_metadata().to_json()
    assert not {"origin", "world_model_sha256"} & content.keys()
    assert DumpMetadata.from_json(content, "here").origin == "game"


def test_simulated_lives_name_their_world_model_or_are_refused() -> None:
    simulated = replace(planted_metadata(), origin="simulated", world_model_sha256="a" * 64)
    assert DumpMetadata.from_json(simulated.to_json(), "here") == DumpMetadata.from_json(simulated.to_json(), "there")
    assert DumpMetadata.from_json(simulated.to_json(), "here").world_model_sha256 == "a" * 64
    nameless = replace(simulated, world_model_sha256=None)
    assert_refuses("its origin is simulated", DumpMetadata.from_json, nameless.to_json(), "here")
