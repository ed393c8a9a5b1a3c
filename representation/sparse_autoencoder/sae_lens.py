"""Autoencoders in the layout of SAELens, so that its tools can load them: `SAE.load_from_disk(FOLDER)`.

The layout is that of SAELens 6: cfg.json names the architecture, sae_weights.safetensors has the weights. BatchTopK and
Matryoshka have a threshold once they are trained, as JumpReLU has, and are written as such.
"""

import numpy as np
import orjson
from safetensors.numpy import save

from activation_store.sparse_dictionary import AUTOENCODERS, SparseDictionary

CONFIG_FILE, WEIGHTS_FILE = "cfg.json", "sae_weights.safetensors"
_LAYOUT_OF = "6.0.0"


def sae_lens_files(dictionary: SparseDictionary) -> dict[str, bytes]:
    """Return the contents of cfg.json and sae_weights.safetensors, by name, in raw activation units.

    Raises:
        ValueError: it is no autoencoder.
    """
    if dictionary.kind not in AUTOENCODERS or dictionary.encoder is None or dictionary.encoder_bias is None:
        raise ValueError(f"a dictionary of kind {dictionary.kind} has no encoder")
    source, is_topk = dictionary.source, dictionary.kind == "topk"
    config = {
        "architecture": "topk" if is_topk else "jumprelu", "d_in": dictionary.units, "d_sae": dictionary.features,
        "dtype": "float32", "device": "cpu", "apply_b_dec_to_input": True, "normalize_activations": "none",
        "reshape_activations": "none",
        "metadata": {
            "sae_lens_version": _LAYOUT_OF, "sae_lens_training_version": None, "model_name": source.policy,
            "hook_name": source.layer, "dataset_path": source.dump, "kind": dictionary.kind,
            "features_of_a_state": dictionary.k,
        },
    }  # fmt: skip
    weights = {
        "W_enc": dictionary.encoder.T, "b_enc": dictionary.encoder_bias, "W_dec": dictionary.decoder,
        "b_dec": dictionary.centre,
    }  # fmt: skip
    if is_topk:
        config["k"] = dictionary.k
    else:
        assert dictionary.threshold is not None
        weights["threshold"] = dictionary.threshold
    content = orjson.dumps(config, option=orjson.OPT_INDENT_2)
    return {CONFIG_FILE: content, WEIGHTS_FILE: save({n: np.ascontiguousarray(w) for n, w in weights.items()})}
