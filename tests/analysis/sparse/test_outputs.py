"""Autoencoders in the layout of SAELens give the same strengths, by its formulas and, where it is installed, by it."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load

from activation_store.sparse_dictionary import AUTOENCODERS, DictionaryKind, SparseDictionary
from agent_zoo.sparse_codes import SparseCoder
from analysis.sparse.outputs import CONFIG_FILE, WEIGHTS_FILE, sae_lens_files
from tests.planted_features import SOURCE

FEATURES, UNITS, K = 24, 8, 3


def dictionary(kind: DictionaryKind) -> SparseDictionary:
    random = np.random.default_rng(0)
    decoder = random.normal(size=(FEATURES, UNITS))
    decoder /= np.linalg.norm(decoder, axis=1, keepdims=True)
    threshold = np.zeros(FEATURES) if kind == "topk" else random.uniform(0.5, 1.5, FEATURES)
    arrays = (decoder, random.normal(size=UNITS), random.normal(size=(FEATURES, UNITS)), random.normal(size=FEATURES))
    decoder, centre, encoder, bias = (array.astype(np.float32) for array in arrays)
    return SparseDictionary(kind, K, decoder, centre, SOURCE, encoder, bias, threshold.astype(np.float32))


@pytest.mark.parametrize("kind", AUTOENCODERS)
def test_the_formulas_of_its_architectures_give_the_same(kind: DictionaryKind) -> None:
    own = dictionary(kind)
    files = sae_lens_files(own)
    config, weights = json.loads(files[CONFIG_FILE]), load(files[WEIGHTS_FILE])
    states = np.random.default_rng(1).normal(size=(50, UNITS)).astype(np.float32) * 3
    z = (states - weights["b_dec"]) @ weights["W_enc"] + weights["b_enc"]
    if config["architecture"] == "topk":
        kept = z >= np.sort(z, axis=1)[:, -config["k"]][:, None]
    else:
        assert config["architecture"] == "jumprelu"
        kept = z > weights["threshold"]
    strengths = np.where(kept, np.maximum(z, 0), 0)
    coder = SparseCoder(own)
    result = coder.strengths(torch.from_numpy(states))
    np.testing.assert_allclose(result.numpy(), strengths, atol=1e-5)
    rebuilt = strengths @ weights["W_dec"] + weights["b_dec"]
    np.testing.assert_allclose(coder.rebuilt(result).numpy(), rebuilt, atol=1e-4)
    assert (config["d_in"], config["d_sae"]) == (UNITS, FEATURES) and config["metadata"]["hook_name"] == "lstm_cell"


@pytest.mark.parametrize("kind", AUTOENCODERS)
def test_it_loads_them(kind: DictionaryKind, tmp_path: Path) -> None:
    sae_lens = pytest.importorskip("sae_lens")
    own = dictionary(kind)
    for name, content in sae_lens_files(own).items():
        (tmp_path / name).write_bytes(content)
    loaded = sae_lens.SAE.load_from_disk(tmp_path)
    states = torch.from_numpy(np.random.default_rng(1).normal(size=(50, UNITS)).astype(np.float32))
    torch.testing.assert_close(loaded.encode(states), SparseCoder(own).strengths(states), atol=1e-5, rtol=1e-4)


def test_baselines_have_no_encoder_to_write() -> None:
    own = dictionary("topk")
    pca = SparseDictionary("pca", K, own.decoder, own.centre, SOURCE)
    with pytest.raises(ValueError, match="has no encoder"):
        sae_lens_files(pca)
