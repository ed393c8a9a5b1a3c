"""What a stage of a study may run: a script of this project that writes into the study's results.

Whoever runs a study file of somebody else runs these scripts, and nothing else.
"""

import re
import shlex
import string
import zlib
from collections.abc import Iterator, Mapping

from common.user_error import UserError
from common.yaml_file import shown

SCRIPTS = frozenset({
    "agent_life_visualization.py", "analyze_activations.py", "analyze_dynamics.py", "cluster_life_phase.py",
    "compare_runs.py", "evaluate.py", "explore.py", "extract_activations.py", "import_policy.py", "intervene.py",
    "panel.py", "render_replay.py", "saliency.py", "semantic_clusters.py", "simulate.py", "train.py", "train_probes.py",
    "train_sparse_autoencoder.py", "train_world_model.py", "analysis/proc_eval_result.py", "analysis/score_ways.py",
})  # fmt: skip
"""All scripts but study.py itself, from the folder of the scripts."""

_OUTPUTS = frozenset({"-o", "--output", "--output-dir"})
_OUTPUTS_OF_TRAINING = (("--policies-dir", "-p", "--eval-model-path"), ("--runs-dir",))
_TRAINING = "train.py"
_EVALUATION = "evaluate.py"
_RESUME = re.compile(r"(--[a-z][a-z-]*)?")
_PLACE = re.compile(r"\{[^{}]*\}")


def places(text: str) -> list[str]:
    """Return the names in braces in a text.

    Raises:
        UserError: a brace is open.
    """
    try:
        fields = [field[1:] for field in string.Formatter().parse(text) if field[1] is not None]
    except ValueError as error:
        raise UserError(f"{shown(text)}: {error}") from None
    if any(form or conversion for _, form, conversion in fields):
        raise UserError(f"{shown(text)}: what stands in braces is a name alone")
    return [name or "" for name, *_ in fields]


def command_words(run: str) -> list[str]:
    """Return the words of a command.

    Raises:
        UserError: a quote is open, or there are none.
    """
    try:
        words = shlex.split(run)
    except ValueError as error:
        raise UserError(f"{shown(run)}: {error}") from None
    if not words:
        raise UserError("its command is empty: must be a script of this project and its options")
    return words


def check_command(run: str, resume: str | None) -> None:
    """Refuse a command that is not a script of this project, or would write elsewhere than into the study's results.

    Args:
        run: with names in braces, which stand for folders of results.
        resume: option with which the script goes on, if any.

    Raises:
        UserError: says what is wrong.
    """
    script, *words = command_words(run)
    if script not in SCRIPTS:
        raise UserError(f"{shown(script)} is not a script of this project: a stage runs those, such as intervene.py")
    if not _RESUME.fullmatch(resume or ""):
        raise UserError(f"resume is {shown(resume or '')}: must be one option, such as --resume")
    given = list(_options(words))
    for option, value in given:
        _check_value(option, value)
        if option in _OUTPUTS and not _inside(value):
            raise UserError(f"{option} {shown(value)} is outside of the results: begin it with {{here}} or {{parent}}")
    if script == _TRAINING:
        _check_training(given)
    if script == _EVALUATION and not _inside(words[0] if words else ""):
        raise UserError(f"{_EVALUATION} writes to its folder of policies: must come first, and begin with a stage's")


def _check_value(option: str, value: str) -> None:
    """Refuse a value that leads out of a folder of results, and a path to something else that a script might change."""
    if not value.isprintable():
        raise UserError(f"{shown(value)} holds characters that no command has")
    for part in value.split(","):
        if ".." in part.split("/"):
            raise UserError(f"{shown(value)} leads out of its folder: '..' is not allowed")
        if _PLACE.search(part) and not _inside(part):
            raise UserError(f"{shown(value)}: a name in braces must begin a path, and '/' follow it")
    if not option and "/" in value and not _inside(value):
        raise UserError(f"{shown(value)} is outside of the results: begin it with the name of a stage in braces")


def _check_training(given: list[tuple[str, str]]) -> None:
    """Refuse trainings that would write to the project's own policies and runs, or start programs of a sweep."""
    for names in _OUTPUTS_OF_TRAINING:
        values = [value for option, value in given if option in names]
        if not values or not all(map(_inside, values)):
            raise UserError(f"{_TRAINING} must have {names[0]} {{here}}/..., or its results are not the study's")
    if any(option in ("-m", "--mode") for option, _ in given):
        raise UserError(f"{_TRAINING} trains only: leave out --mode")


def _inside(path: str) -> bool:
    """Return whether a path begins with a folder of results."""
    return bool(re.fullmatch(rf"{_PLACE.pattern}(/[^{{}}]*)?", path)) and ".." not in path.split("/")


def _options(words: list[str]) -> Iterator[tuple[str, str]]:
    """Yield each word that is not an option, with the option before it, "" if there is none; `--a=b` is both."""
    option = ""
    for word in words:
        name, sign, value = word.partition("=")
        if re.match(r"--[a-zA-Z]", word):
            option = name.replace("_", "-")
        elif re.match(r"-[a-zA-Z]", word):  # a short one, whose value may follow without a space
            option, value = word[:2], word[2:].removeprefix("=")
            sign = value
        else:
            yield option, word
            option = ""
            continue
        if sign:
            yield option, value
            option = ""


DEFAULT_SEEDS = {"intervene.py": 0, "extract_activations.py": 1, "evaluate.py": 1}
"""Scripts that play episodes of the seed that --seed gives, and the seed without it."""

_SEED = ("--seed", "-s")
_REPEATS = ("--repeats", "--repeat", "-r")  # of evaluate.py: so many seeds, one after the other
_FROM_A_DUMP = ("--learn",)  # of intervene.py: it plays nothing, and its seed is not one of worlds
_LARGEST = 99_999


def with_own_seed(run: str, name: str) -> str:
    """Return the command of a stage that is one of several, with a seed of its own if it plays episodes without one.

    The seed follows from the stage's name, so it stays the same when other stages are added.
    """
    if run.split(maxsplit=1)[0] not in DEFAULT_SEEDS or _value_of(run, _SEED) is not None:
        return run
    return f"{run} --seed {1 + zlib.crc32(name.encode()) % _LARGEST}"


def seeds_of(commands: Mapping[str, str], needs: Mapping[str, set[str]]) -> dict[str, frozenset[str]]:
    """Return the seeds whose episodes are behind the results of each stage, of which stages of one seed share worlds.

    Args:
        needs: stages before it whose folders its command reads. One that plays nothing has their seeds, or without
            any, its own name.
    """
    seeds: dict[str, frozenset[str]] = {}
    for name, command in commands.items():
        if command.split(maxsplit=1)[0] in DEFAULT_SEEDS and _value_of(command, _FROM_A_DUMP) is None:
            seeds[name] = _seeds_played(command)
        else:
            read = frozenset().union(*(seeds[other] for other in needs[name] if other in seeds))
            seeds[name] = read or frozenset({name})
    return seeds


def _seeds_played(command: str) -> frozenset[str]:
    """Return the seeds whose episodes a command plays; what is no number, its script refuses."""
    seed = _value_of(command, _SEED) or str(DEFAULT_SEEDS[command.split(maxsplit=1)[0]])
    repeats = _value_of(command, _REPEATS) or "1"
    if not (seed.isdecimal() and repeats.isdecimal()):
        return frozenset({seed})
    return frozenset(str(int(seed) + place) for place in range(int(repeats)))


def _value_of(command: str, options: tuple[str, ...]) -> str | None:
    """Return what a command says of an option, which has several names."""
    return next((value for option, value in _options(shlex.split(command)) if option in options), None)
