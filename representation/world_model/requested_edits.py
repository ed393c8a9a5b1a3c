"""From the edits that users ask for to those that are made in a simulation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from activation_store.directions import Direction, Directions
from activation_store.layers import check_policy_layers
from activation_store.sparse_dictionary import SparseDictionary
from agent_zoo.donor_rule import DonorRule
from agent_zoo.edit_options import EditOptions
from agent_zoo.erasure import fitted_eraser
from agent_zoo.feature_edits import FeatureEdit, check_dictionary, features_of
from agent_zoo.linear_readings import JointMoments, Reading
from agent_zoo.memory_edits import Clear, Freeze, MemoryEdit, Transplant
from agent_zoo.own_features import OWN, check_feature
from agent_zoo.state_edits import EditOf, Eraser, Interchange, StateEdit, check_direction, edit_along, interchange
from representation.world_model.edits import Edits
from representation.world_model.model import Origin, WorldModel
from representation.world_model.recorded_states import RecordedStates
from representation.world_model.scene import own_columns
from user_error import UserError


@dataclass(frozen=True, eq=False)
class EditSources:
    """What the names in edits stand for.

    Attributes:
        directions: None if no edit names any.
        dictionary: of sparse features; None likewise.
        states: recorded ones.
    """

    directions: Directions | None
    dictionary: SparseDictionary | None
    states: RecordedStates


def requested_edits(
    options: Sequence[EditOptions], sources: EditSources, model: WorldModel, origin: Origin
) -> list[Edits]:
    """Return what the options ask for: one set of edits for each dose, or a single one without doses.

    Args:
        options: of the edits, which are made together.
        sources: of what they name.
        model: whose policy is edited.
        origin: of the model.

    Raises:
        UserError: a direction, a sparse feature or a variable does not exist, or does not fit the policy or the edit; a
            variable does not vary; or simulated lives do not have the feature in which donors are to differ.
    """
    units = model.policy.layer_units
    if sources.dictionary:
        check_dictionary(sources.dictionary, units, origin.policy, origin.policy_sha256)
    named = [_named(each, sources, model, origin.policy) for each in options]
    for each in named:
        for direction in each.directions:
            check_direction(direction, _of(each.options), units, origin.policy, origin.policy_sha256)
    doses: list[float | None] = [dose for each in options for dose in each.doses] or [None]
    return [_with_dose(named, dose, sources.states) for dose in doses]


@dataclass(frozen=True, eq=False)
class _Named:
    """An edit with what its names stand for."""

    options: EditOptions
    directions: tuple[Direction, ...] = ()
    features: FeatureEdit | None = None
    erasure: "_Erasure | None" = None
    donor: DonorRule | None = None


@dataclass(frozen=True, eq=False)
class _Erasure:
    """An eraser, with the moments of the states that it was fitted to."""

    eraser: Eraser
    moments: JointMoments


def _named(options: EditOptions, sources: EditSources, model: WorldModel, policy: str) -> _Named:
    if features := features_of(options, sources.dictionary):
        return _Named(options, features=features)
    if options.erased_layer:
        return _Named(options, erasure=_erasure(options, options.erased_layer, sources.states, model, policy))
    found = sources.directions
    directions = found.all_named(options.names) if found else ()
    return _Named(options, directions, donor=_rule(options.donor, model, policy) if options.donor else None)


def _rule(feature: str, model: WorldModel, policy: str) -> DonorRule:
    """Read the name of a feature in which simulated lives can differ."""
    rule = DonorRule.parse(feature, model.layout.entity_columns)
    column = feature.removeprefix(OWN)
    if column not in own_columns(model.layout) or column in model.policy.mask.withheld:
        raise UserError(
            f"--donor {feature}: simulated lives do not have it, since they hold only what {policy} sees of its own "
            "body: name another feature, such as self_gold"
        )
    return rule


def _erasure(options: EditOptions, layer: str, recorded: RecordedStates, model: WorldModel, policy: str) -> _Erasure:
    check_policy_layers([layer], model.policy.layers, model.policy.cell)
    for name in options.variables:
        check_feature(f"--variable {options.variable}", name, model.layout.entity_columns)
    reading = Reading(layer, options.variables)
    moments = recorded.moments(reading)
    return _Erasure(fitted_eraser(reading, moments, policy), moments)


def _with_dose(named: Sequence[_Named], dose: float | None, recorded: RecordedStates) -> Edits:
    words, described = list[str](), list[dict[str, Any]]()
    states, memories = list[StateEdit | Interchange](), list[MemoryEdit | Transplant]()
    for each in named:
        options = each.options
        words += [options.edit, *(name.replace("/", "_") for name in options.names)]
        words += [*options.variables, options.erased_layer] if options.erased_layer else []
        words += ["change"] if options.change else []
        words += [f"dose{dose:+g}"] if options.doses and dose is not None else []
        words += [f"every_{options.every}"] if options.every > 1 else []
        words += [options.donor] if options.donor else []
        described.append(_described(each, dose))
        strength = dose if options.doses and dose is not None else 0.0
        if options.edit == "clear":
            memories.append(Clear(options.every))
        elif options.edit == "freeze":
            memories.append(Freeze())
        elif each.donor:
            if options.edit == "transplant":
                memories.append(Transplant(each.donor, options.every))
            else:
                states.append(interchange(each.directions, each.donor))
        elif each.erasure:
            states.append(each.erasure.eraser)
        elif each.features:
            states.append(replace(each.features, strength=strength))
        else:
            kind = cast(Any, options.edit)
            states.append(edit_along(kind, each.directions, _of(options), strength, recorded.covariance))
    return Edits("-".join(words), tuple(described), tuple(states), tuple(memories))


def _described(edit: _Named, dose: float | None) -> dict[str, Any]:
    options, told = edit.options, dict[str, Any](edit=edit.options.edit)
    if edit.directions:
        told |= {"directions": [each.name for each in edit.directions], "of": _of(options)}
        told |= {"runs": [each.source.run for each in edit.directions]}
    if edit.features:
        told |= {"features": list(options.names)} if options.names else {}
        source = edit.features.dictionary.source
        told |= {"layer": source.layer, "dictionary": f"{source.run}/{edit.features.dictionary.kind}"}
    if edit.erasure:
        before = dict(zip(options.variables, edit.erasure.moments.r_squared().round(6).tolist(), strict=True))
        told |= {"layer": options.erased_layer, "r_squared": before, "states": edit.erasure.moments.sums.count}
    extra: Mapping[str, Any] = {"dose": dose if options.doses else None, "every": options.every, "donor": options.donor}
    return told | {name: each for name, each in extra.items() if each not in (None, 1)}


def _of(options: EditOptions) -> EditOf:
    return "change" if options.change else "state"
