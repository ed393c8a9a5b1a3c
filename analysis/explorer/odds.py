"""How likely the policy thought what it did, and its other options, at each tick of a page."""

from pathlib import Path

import numpy as np

from activation_store.layers import LSTM_HIDDEN
from activation_store.reader import read_metadata
from activation_store.records import Records
from agent_zoo.base import RecurrentPolicy
from analysis.dynamics.tracks import load_policy_of
from analysis.explorer.content import Explored
from analysis.explorer.tracks import everywhere
from analysis.recorded.recorded_observation import missing_for_probabilities, probabilities_of
from analysis.runs.finished_files import RunDescription
from common.progress_view import Step
from common.user_error import UserError

_LEGAL = "legal"


def policy_for(run: RunDescription, dump: Path, policy: Path | None) -> RecurrentPolicy:
    """Load the policy that a run of analyze_dynamics.py used, or the checkpoint that is named.

    Raises:
        UserError: it is not there, or not the one that the dump was recorded from; or the dump or the simulated lives
            do not hold what probabilities are computed from.
    """
    of_run, folder = run.arguments.get("policy"), run.arguments.get("policies_dir")
    named = policy or (Path(of_run) if isinstance(of_run, str) else None)
    return load_policy_of(read_metadata(dump), dump, named, Path(str(folder or "policies")))[0]


def odds_of(content: Explored, policy: RecurrentPolicy | None, step: Step) -> dict[str, np.ndarray]:
    """Return the probabilities of what was chosen, and, with a policy, of its options, at the T + S ticks of a page.

    Simulated ticks come last. Under "", what was chosen in each action head, (T + S, heads) float32, NaN where it was
    not recorded; under names of heads, their options, (T + S, options) float32.

    Raises:
        UserError: a dump does not hold what they are computed from.
    """
    records = [content.seen.records, *(lives.seen.records for lives in content.simulated)]
    chosen = np.exp(np.concatenate([some.log_probability for some in records]))
    if policy is None:
        return {"": chosen}
    for dump in (content.run.dump, *(lives.dump for lives in content.simulated)):
        if missing := missing_for_probabilities(dump, read_metadata(dump)):
            raise UserError(missing)
    sizes: dict[str, int] = {}

    def shares(batch: Records) -> np.ndarray:
        odds = probabilities_of(policy, batch, content.seen.metadata)
        sizes.update({head: part.shape[1] for head, part in odds.items()})
        return np.concatenate([np.empty((len(batch), 0)), *odds.values()], axis=1)

    with step("probabilities of actions") as report:
        together = everywhere(content, shares, LSTM_HIDDEN, report, (_LEGAL,))
    parts = np.split(together, np.cumsum(list(sizes.values()))[:-1], axis=1)
    return {"": chosen, **dict(zip(sizes, parts, strict=True))}
