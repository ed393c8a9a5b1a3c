"""Attribution methods: gradient times input, integrated gradients, smoothed gradients (by captum), and occlusion."""

from dataclasses import replace
from typing import Literal

import torch

from agent_zoo.base import RecurrentPolicy
from agent_zoo.network_parts.layers import RowFeatures, own_rows
from agent_zoo.observation import ObservationLayout, PackedObservation, PackedRows, legal_options, packed_options
from analysis.attribution.settings import SaliencySettings
from analysis.attribution.targets import MemoryComponents, Target
from analysis.attribution.windows import COMPONENTS, MEMORY, Differentiable, LifeWindows, by_column, decided

_PARTS_AT_ONCE = 512
"""Changed observations that are played together in occlusion."""


Maps = dict[str, torch.Tensor]
"""Attributions of N states over T ticks, oldest first, in the target's own unit, by name as in `Attributions`. And of
integrated gradients, `change`, how far the target is from that of the baseline, (N,), and `error`, how far the sum is
from that; else NaN."""

Baseline = dict[str, torch.Tensor]
"""What integrated gradients start from, by the name of the input, without the axes of states, ticks and rows."""


def average_baseline(
    policy: RecurrentPolicy, windows: LifeWindows, components: MemoryComponents | None = None
) -> Baseline:  # fmt: skip
    """Average over windows: views, own rows, tasks and memories; nobody else is there, and no items."""
    function = Differentiable(policy, windows, Target(), components)
    parts = dict(zip(function.names, (part.detach() for part in function.inputs()), strict=True))
    encoder, observation = policy.policy, windows.observation
    no_entity, no_item = (
        rows.values.new_zeros(1, rows.values.shape[1]) for rows in (observation.entity, observation.inventory)
    )
    return {
        **{name: parts[name].flatten(0, 1).mean(dim=0) for name in ("tiles", "own", "task")},
        "entities": encoder.entity_features(no_entity)[0],  # type: ignore[operator]
        "inventory": encoder.item_features(no_item)[0],  # type: ignore[operator]
        **{name: parts[name].mean(dim=0) for name in (*MEMORY, COMPONENTS) if name in parts},
    }


def attribute(
    settings: SaliencySettings, policy: RecurrentPolicy, windows: LifeWindows, target: Target, baseline: Baseline,
    components: MemoryComponents | None = None,
) -> Maps:  # fmt: skip
    """Attribute a target to everything that the policy read in some windows.

    Args:
        policy: in evaluation mode, its parameters without gradients.
        windows: N of them; for occlusion, of one tick.
        baseline: of integrated gradients, in which components are as here.
    """
    if settings.method == "occlusion":
        return _occluded(policy, windows, target, components)
    from captum.attr import InputXGradient, IntegratedGradients, NoiseTunnel

    function = Differentiable(policy, windows, target, components)
    inputs, index = function.inputs(), torch.arange(len(windows))
    error = change = torch.full((len(windows),), torch.nan)
    if settings.method == "integrated":
        base = tuple(baseline[name].expand_as(part) for name, part in zip(function.names, inputs, strict=True))
        attributions = IntegratedGradients(function).attribute(
            inputs, base, additional_forward_args=(index,), n_steps=settings.steps,
            internal_batch_size=max(len(index), 64),
        )  # fmt: skip
        with torch.no_grad():
            change = function(*inputs, index) - function(*base, index)
        own = zip(function.names, attributions, strict=True)
        error = sum(part.flatten(1).sum(dim=1) for name, part in own if name != COMPONENTS) - change
    elif settings.method == "smooth":
        torch.manual_seed(settings.seed)
        attributions = NoiseTunnel(InputXGradient(function)).attribute(
            inputs, nt_type="smoothgrad", nt_samples=settings.copies, nt_samples_batch_size=1, stdevs=settings.noise,
            additional_forward_args=(index,),
        )  # fmt: skip
    else:
        attributions = InputXGradient(function).attribute(inputs, additional_forward_args=(index,))
    return _maps(policy, windows, dict(zip(function.names, attributions, strict=True)), error.detach(), change)


def _maps(
    policy: RecurrentPolicy, windows: LifeWindows, attributions: dict[str, torch.Tensor], error: torch.Tensor,
    change: torch.Tensor,
) -> Maps:  # fmt: skip
    """Add up attributions of one-hot planes and of features to those of tiles, rows and columns."""
    features = policy.policy.entity_features
    assert isinstance(features, RowFeatures)
    entities, own = attributions["entities"].detach(), attributions["own"].detach()
    observation, rows = windows.observation, windows.observation.entity
    is_self = torch.zeros(len(observation), rows.most, dtype=torch.bool)
    is_self[rows.owner, rows.place] = rows.values[:, 0] == observation.agent_id[rows.owner]
    is_self = is_self.unflatten(0, (len(windows), -1))  # (N, T, most entities)
    own = own + (entities * is_self.unsqueeze(3)).sum(dim=2)  # an agent's own row is among the entities too
    memory = [attributions[name].detach() for name in MEMORY if name in attributions]
    nothing = torch.zeros(len(windows), 0)
    return {
        "tiles": attributions["tiles"].detach().sum(dim=3),
        "entities": (entities * ~is_self.unsqueeze(3)).sum(dim=3),
        "own": by_column(features, own),
        "inventory": attributions["inventory"].detach().sum(dim=3),
        "task": attributions["task"].detach().sum(dim=2),
        "memory": torch.cat(memory, dim=1) if memory else nothing,
        "components": attributions[COMPONENTS].detach() if COMPONENTS in attributions else nothing,
        "error": error, "change": change.detach(),
    }  # fmt: skip


def counterfactual_materials(material: torch.Tensor, materials: int) -> torch.Tensor:
    """Return what each tile is replaced by: the view's commonest material, or the next one where it is that already.

    Args:
        material: of the tiles in view, (B, tiles) uint8.
    """
    counts = torch.zeros(len(material), materials).scatter_add_(1, material.long(), torch.ones(material.shape))
    first, second = counts.topk(2, dim=1).indices.unbind(1)
    return torch.where(material == first.unsqueeze(1), second.unsqueeze(1), first.unsqueeze(1)).to(material.dtype)


def without_row(
    observation: PackedObservation, table: Literal["entity", "inventory"], row: torch.Tensor, layout: ObservationLayout
) -> PackedObservation:
    """Return observations in which one row of a table is gone, and the options that point at it.

    Args:
        row: its place among each agent's rows, (B,) int64.
    """
    rows: PackedRows = getattr(observation, table)
    kept = rows.place != row[rows.owner]
    parts = list(legal_options(observation, layout).split([head.size for head in layout.heads], dim=1))
    for number, head in enumerate(layout.heads):
        if head.candidates == table:
            mask = parts[number]
            place = torch.arange(mask.shape[1] - 1).expand(len(mask), -1)
            moved = torch.where(place >= row.unsqueeze(1), place + 1, place).clamp(max=mask.shape[1] - 2)
            left = torch.cat([mask.gather(1, moved), mask[:, -1:]], dim=1)
            left[:, -1] |= ~left.any(dim=1)
            parts[number] = left
    legal = packed_options(torch.cat(parts, dim=1))
    return replace(observation, legal=legal, **{table: rows.take_rows(kept)})  # type: ignore[arg-type]


def _occluded(
    policy: RecurrentPolicy, windows: LifeWindows, target: Target, components: MemoryComponents | None
) -> Maps:  # fmt: skip
    """Attribute the fall of the target when a tile, an entity, an item or a component is replaced by another."""
    if windows.ticks != 1:
        raise ValueError("occlusion is of the present tick")
    layout, observation, count = policy.policy.layout, windows.observation, len(windows)
    before = play(policy, windows, observation, target)
    other = counterfactual_materials(observation.material, layout.materials)
    tiles = torch.zeros(count, layout.tiles)
    for some in torch.arange(layout.tiles).split(max(1, _PARTS_AT_ONCE // count)):
        index = torch.arange(count).repeat_interleave(len(some))
        place = some.repeat(count)
        changed = windows.take(index)
        material = changed.observation.material.clone()
        material[torch.arange(len(index)), place] = other[index, place]
        after = play(policy, changed, replace(changed.observation, material=material), target)
        tiles[:, some] = before.unsqueeze(1) - after.view(count, -1)
    rows = {}
    for table in ("entity", "inventory"):
        packed: PackedRows = getattr(observation, table)
        changes = torch.zeros(count, packed.most)
        for place in range(packed.most):
            there = (packed.counts > place).nonzero().squeeze(1)
            if table == "entity":
                own = packed.values[packed.starts[there] + place, 0] == observation.agent_id[there]
                there = there[~own]
            if len(there):
                changed = windows.take(there)
                removed = without_row(changed.observation, table, torch.full_like(there, place), layout)
                changes[there, place] = before[there] - play(policy, changed, removed, target)
        rows[table] = changes
    nothing, unknown = torch.zeros(count, 0), torch.full((count,), torch.nan)
    of_components = nothing
    if components is not None:
        of_components = before.unsqueeze(1) - _without_components(policy, windows, target, components)
    return {
        "tiles": tiles.unsqueeze(1), "entities": rows["entity"].unsqueeze(1),
        "own": torch.full((count, 1, len(layout.entity_columns)), torch.nan),
        "inventory": rows["inventory"].unsqueeze(1), "task": torch.full((count, 1), torch.nan), "memory": nothing,
        "components": of_components, "error": unknown, "change": unknown,
    }  # fmt: skip


def _without_components(
    policy: RecurrentPolicy, windows: LifeWindows, target: Target, components: MemoryComponents
) -> torch.Tensor:  # fmt: skip
    """Return the target with each component at its mean in turn, (N, K)."""
    states = [state for state in (windows.memory.hidden, windows.memory.cell) if len(state)]
    memory = torch.cat([state.transpose(0, 1).flatten(1) for state in states], dim=1)  # (N, S)
    strengths, changes = components.strengths(memory), []
    for number, pattern in enumerate(components.pattern):
        changed = (memory - strengths[:, number : number + 1] * pattern).split([len(s) * s.shape[2] for s in states], 1)
        parts = [
            part.unflatten(1, (len(state), -1)).transpose(0, 1) for part, state in zip(changed, states, strict=True)
        ]
        edited = replace(windows, memory=replace(windows.memory, **dict(zip(MEMORY, parts, strict=False))))
        changes.append(play(policy, edited, windows.observation, target))
    return torch.stack(changes, dim=1)


@torch.no_grad()
def play(policy: RecurrentPolicy, windows: LifeWindows, observation: PackedObservation, target: Target) -> torch.Tensor:
    """Return the target in windows whose observations are replaced, (N,)."""
    own_rows(observation)  # refuses agents that do not see themselves
    encoded, candidates = policy.encode(observation)
    replaced = LifeWindows(observation, windows.ticks, windows.memory, windows.action)
    return target(decided(policy, replaced, encoded, candidates, windows.memory))
