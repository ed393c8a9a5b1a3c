"""Write states as sparse features, and features as states, with the dictionaries of `activation_store`."""

import torch
from torch.nn import functional

from activation_store.sparse_dictionary import AUTOENCODERS, SparseDictionary

_CHUNK = 4096


class SparseCoder:
    """A dictionary ready to use in torch. U units, F features."""

    def __init__(self, dictionary: SparseDictionary, device: torch.device | str = "cpu"):
        self.kind, self.k = dictionary.kind, dictionary.k
        parts = {name: torch.from_numpy(array).to(device) for name, array in dictionary.arrays.items()}
        self.decoder, self.centre = parts["decoder"], parts["centre"]
        self.encoder, self.encoder_bias = parts.get("encoder"), parts.get("encoder_bias")
        self.threshold = parts.get("threshold")
        self.products = None if self.kind in AUTOENCODERS else self.decoder @ self.decoder.T  # (F, F)

    def strengths(self, states: torch.Tensor) -> torch.Tensor:
        """Return the strength of every feature in each state, (B, U) to (B, F), most of them 0.

        Differentiable with respect to the states for autoencoders.
        """
        if self.products is not None:
            if not len(states):
                return states.new_zeros(0, len(self.decoder))
            chunks = [chunk - self.centre for chunk in states.split(_CHUNK)]
            return torch.cat([matching_pursuit(chunk, self.decoder, self.products, self.k) for chunk in chunks])
        z = self.read_out(states)
        if self.kind == "topk":
            return keep_largest(z, self.k)
        assert self.threshold is not None
        return torch.where(z > self.threshold, z, 0)

    def read_out(self, states: torch.Tensor) -> torch.Tensor:
        """Return z, from which an autoencoder's strengths follow, (B, U) to (B, F)."""
        assert self.encoder is not None
        return functional.linear(states - self.centre, self.encoder, self.encoder_bias)

    def rebuilt(self, strengths: torch.Tensor) -> torch.Tensor:
        """Return the states that strengths stand for, (B, F) to (B, U)."""
        return strengths @ self.decoder + self.centre

    def reconstruction(self, states: torch.Tensor) -> torch.Tensor:
        """Return states as the dictionary writes them, (B, U) to (B, U)."""
        if len(states) <= _CHUNK:
            return self.rebuilt(self.strengths(states))
        return torch.cat([self.rebuilt(self.strengths(chunk)) for chunk in states.split(_CHUNK)])


def keep_largest(z: torch.Tensor, k: int) -> torch.Tensor:
    """Keep the k largest positive numbers of each row, (B, F) to (B, F); the others become 0."""
    values, places = z.topk(k, dim=1, sorted=False)
    return torch.zeros_like(z).scatter(1, places, values.relu())


def matching_pursuit(centred: torch.Tensor, atoms: torch.Tensor, products: torch.Tensor, k: int) -> torch.Tensor:
    """Write vectors as sums of k atoms, found one after the other (Mallat and Zhang 1993).

    Each step takes the atom that explains most of what is left. Once a vector has k atoms, as many further steps only
    improve their strengths. For orthogonal atoms, as those of PCA, the result is the k largest scores, and no other
    choice of k explains more.

    Args:
        centred: vectors, (B, U).
        atoms: of length 1, (F, U).
        products: of every two atoms, (F, F).
        k: atoms of a vector, at most.

    Returns:
        Strengths, (B, F); they can be negative.
    """
    left = centred @ atoms.T  # (B, F): products of the rest with every atom
    strengths = torch.zeros_like(left)
    for number in range(2 * k):
        fit = left.abs()
        if number >= k:
            taken = strengths != 0
            fit = fit.masked_fill(~taken & (taken.sum(dim=1, keepdim=True) >= k), -1)
        place = fit.argmax(dim=1, keepdim=True)  # (B, 1)
        strength = left.gather(1, place)
        strengths.scatter_add_(1, place, strength)
        left.sub_(products[place.squeeze(1)] * strength)
    return strengths
