"""Names that a person gave to a run's codes, in labels.yaml in its folder."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from common.files import read_bytes, write_text
from common.user_error import UserError
from common.yaml_file import parse_yaml

LABELS_FILE = "labels.yaml"
LONGEST_NAME = 60
_LARGEST_BYTES = 1 << 16
_HEAD = "# Names of codes: write one after the colon. `semantic_clusters.py` and `explore.py` show them.\n"


def read_names(run: Path) -> dict[int, str]:
    """Return the names of a run's codes; codes without a name are left out.

    Raises:
        UserError: labels.yaml is too large, is no YAML, or holds something other than `NUMBER: name`.
    """
    path = run / LABELS_FILE
    if not path.exists():
        return {}
    content = read_bytes(path)
    if len(content) > _LARGEST_BYTES:
        raise UserError(f"{path} is larger than {_LARGEST_BYTES >> 10} KiB: names of codes are short")
    try:
        parsed = parse_yaml(path, content)
    except UserError as error:
        raise UserError(f"{error}: write one line `NUMBER: name` for each code") from None
    if parsed is None:
        return {}
    if not isinstance(parsed, dict):
        raise UserError(f"{path} holds no names: write one line `NUMBER: name` for each code")
    names = {}
    for number, name in parsed.items():
        if type(number) is not int or not isinstance(name, str | None):
            raise UserError(f"{path} must hold lines `NUMBER: name`, with the name in quotes if it is a number")
        if name and name.strip():
            names[number] = " ".join(name.split())[:LONGEST_NAME]
    return names


def keep_names(run: Path, labels: Sequence[int]) -> Path:
    """Write labels.yaml with a line for each code, keeping the names that it has."""
    import yaml

    names = read_names(run)
    lines = [yaml.safe_dump({label: names.get(label, "")}, allow_unicode=True, width=1000) for label in labels]
    write_text(run / LABELS_FILE, _HEAD + "".join(lines))
    return run / LABELS_FILE


def called(label: int, names: Mapping[int, str]) -> str:
    """Return what to call a code: its number, and its name if it has one."""
    return f"{label} ({names[label]})" if label in names else str(label)
