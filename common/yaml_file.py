"""The one reader of YAML: whatever a file holds, it is either read quickly or refused in one line."""

import re
from datetime import date
from pathlib import Path
from typing import Any

import yaml

from common.files import open_file
from common.user_error import UserError

LARGEST_BYTES = 1 << 20
DEEPEST = 32
MOST_VALUES = 30_000
LONGEST_NUMBER = 100
_LONGEST_SHOWN = 200
_NO_TEXT = re.compile("[\0\ud800-\udfff]")
"""Half a character, which cannot be written anywhere, and the end of texts in the operating system."""
_MERGE = "tag:yaml.org,2002:merge"
_NUMBERS = tuple(f"tag:yaml.org,2002:{kind}" for kind in ("int", "float", "timestamp"))


def read_yaml(path: Path, option: str) -> object:
    """Return what a YAML file holds; nothing in it can run code.

    Aliases (`*name`) are refused: a few of them can stand for billions of values.

    Args:
        option: of the command line that names the file, for messages.

    Raises:
        UserError: the file is missing, no plain file, unreadable or larger than 1 MiB; or as `parse_yaml`.
    """
    try:
        with open_file(path) as file:
            content = file.read(LARGEST_BYTES + 1)
    except UserError as error:
        raise UserError(f"{error}: give a YAML file with {option}") from None
    if len(content) > LARGEST_BYTES:
        raise UserError(f"{path} is larger than {LARGEST_BYTES >> 20} MiB: give a smaller YAML file with {option}")
    return parse_yaml(path, content)


def parse_yaml(path: Path, content: bytes) -> object:
    """Return what the content of a YAML file stands for, as `read_yaml`.

    Raises:
        UserError: it is not valid YAML, holds an alias, a merge key or a character that is no text, nests deeper than
            32 levels, or holds more than 30,000 values or a number of more than 100 characters; the message says in
            which line.
    """
    try:
        return yaml.load(content.decode("utf-8"), Loader=_Loader)
    except UnicodeDecodeError as error:
        raise UserError(f"{path} cannot be read as YAML: it is not UTF-8 text ({error.reason})") from None
    except yaml.YAMLError as error:
        problem = str(error)
        if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
            problem = f"line {error.problem_mark.line + 1}: {error.problem}"
        raise UserError(f"{path} cannot be read as YAML: {one_line(problem)}") from None
    except (OverflowError, ValueError):
        raise UserError(f"{path} cannot be read as YAML: the number of an escaped character is too large") from None


def shown(value: object) -> str:
    """Return a value from a file as messages show it: on one line, and cut if it is long."""
    return one_line(repr(value))


def one_line(text: str) -> str:
    """Return text from a file on one line, and cut if it is long."""
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


class _Loader(yaml.SafeLoader):
    """Builds plain values only, without aliases, and not too many or too deep; failures say in which line."""

    depth = 0
    values = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()
        if isinstance(event, yaml.AliasEvent):
            raise _refusal(f"the alias *{event.anchor}: aliases are not read, write the value out", event.start_mark)
        self.depth += 1
        self.values += 1
        if self.depth > DEEPEST:
            raise _refusal(f"nested deeper than {DEEPEST} levels", event.start_mark)
        if self.values > MOST_VALUES:
            raise _refusal(f"more than {MOST_VALUES:,} values", event.start_mark)
        node = super().compose_node(parent, index)
        self.depth -= 1
        if isinstance(node, yaml.ScalarNode):
            if node.tag == _MERGE:
                raise _refusal("the key <<: nothing is merged, write the values out", node.start_mark)
            if match := _NO_TEXT.search(node.value):
                raise _refusal(f"{match[0]!a} is no character of a text", node.start_mark)
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        content = super().construct_mapping(node, deep)
        for key in content:
            if isinstance(key, bytes | date):
                raise _refusal(f"the key {shown(key)} is neither text nor a number: quote it", node.start_mark)
        return content

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        if node.tag in _NUMBERS and len(node.value) > LONGEST_NUMBER:
            raise _refusal(f"a number of {len(node.value):,} characters; at most {LONGEST_NUMBER}", node.start_mark)
        try:
            return super().construct_object(node, deep)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            # What the library lets through where the text of a value does not fit its tag, such as 2001-99-99.
            kind = node.tag.rpartition(":")[2]
            raise _refusal(f"{shown(node.value)} is not a valid {kind}", node.start_mark) from None


def _refusal(what: str, mark: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=what, problem_mark=mark)
