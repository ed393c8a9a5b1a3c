"""The text of a study's page: a Jinja template that shows results by their names, and can do nothing else.

Between `{% claim NAME %}` and `{% endclaim %}` stand a sentence, `{% control %}`, and what could have refuted it. There
`{{ ROW.COLUMN }}` is a number of a row of results, `{{ ROW.COLUMN.mean }}` of a row of several stages, and
`{{ ROW.COLUMN|f("+.1f") }}` the same in a format. Elsewhere, `{{ PART }}` shows a part of the page.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from common.files import read_bytes
from common.user_error import UserError
from common.yaml_file import one_line, shown

if TYPE_CHECKING:
    from jinja2 import nodes
    from jinja2.sandbox import SandboxedEnvironment

SUFFIX = ".md.jinja"
MUST_SHOW = ("primary", "made")
PARTS = (*MUST_SHOW, "tables", "forests", "figures")
"""What a template can show besides claims."""
FORMAT = re.compile(r"\+?(d|(\.\d)?[f%]?)")
LONGEST = 1 << 18

_HEADINGS = ("## Findings", "## What this does not show")
_CODE = re.compile(r"`[^`]*`")
_WRAPPED = re.compile(r"(?<=[^\n])\n[ \t]*(?=[^\s#|<])(?!- |!\[|```)")
"""A line end within a paragraph or an item of a list: Markdown shows a space there."""


@dataclass(frozen=True)
class Number:
    """A number of a claim."""

    row: str
    column: str
    what: str = ""  # is said of the column over several stages; empty for a row of one stage
    form: str = ""  # its format; empty for the text as it stands in the table

    @property
    def key(self) -> str:
        """The column, and what is said of it."""
        return f"{self.column}.{self.what}" if self.what else self.column

    def __str__(self) -> str:
        return f"{self.row}.{self.key}"


Words = tuple[str | Number, ...]
"""A sentence: texts, and the numbers between them."""


@dataclass(frozen=True)
class PageText:
    """A page's text."""

    source: str
    claims: dict[str, tuple[Words, Words]]  # sentence and control of each claim by its name, in the order of the page
    parts: tuple[str, ...]

    def render(self, claims: Mapping[str, str], parts: Mapping[str, str]) -> str:
        """Return the page, given the text of each claim and of each part."""
        shown_parts = {name: parts[name] for name in self.parts}
        return _environment().from_string(self.source).render(claim=lambda name, caller: claims[name], **shown_parts)


EMPTY = PageText("", {}, ())


def template_of(study: Path) -> Path:
    """Return where the template of a study file lies."""
    return study.with_suffix(SUFFIX)


def read_template(path: Path) -> PageText:
    """Read a template.

    Raises:
        UserError: it is missing, or as in `parse_template`.
    """
    if not path.exists():
        raise UserError(f"{path} does not exist: the text of the study's page belongs there")
    try:
        return parse_template(read_bytes(path).decode("utf-8"))
    except UnicodeDecodeError:
        raise UserError(f"{path} is not UTF-8 text") from None
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def parse_template(source: str) -> PageText:
    """Return a page's text from its template.

    Raises:
        UserError: it holds anything but text, claims and parts of the page; a claim or part is there twice; a number
            in the text comes from nowhere; or the page lacks what all pages have.
    """
    from jinja2 import TemplateSyntaxError, nodes

    if len(source) > LONGEST:
        raise UserError(f"the template has {len(source):,} characters: at most {LONGEST:,}")
    try:
        tree = _environment().parse(source)
    except TemplateSyntaxError as error:
        raise UserError(f"line {error.lineno}: {one_line(error.message or 'no template')}") from None
    except (RecursionError, ValueError, OverflowError) as error:  # brackets without end, numbers without end
        raise UserError(f"no template: {one_line(str(error))}") from None
    claims: dict[str, tuple[Words, Words]] = {}
    parts: list[str] = []
    free = ""
    for node in _printed(tree.body):
        if isinstance(node, nodes.TemplateData):
            free += node.data
        elif isinstance(node, nodes.CallBlock):
            name, *sentences = _claim(node)
            if name in claims:
                raise UserError(f"line {node.lineno}: the claim {name} is there twice")
            claims[name] = (sentences[0], sentences[1])
        elif isinstance(node, nodes.Name) and node.name in PARTS and node.name not in parts:
            parts.append(node.name)
        else:
            known = ", ".join(PARTS)
            raise UserError(f"line {node.lineno}: outside of claims, only {known} can be shown, each once")
    check_free_text(free)
    if lacking := [name for name in MUST_SHOW if name not in parts]:
        raise UserError(f"the page does not show {{{{ {lacking[0]} }}}}")
    if lacking := [heading for heading in _HEADINGS if heading not in free.splitlines()]:
        raise UserError(f"the page has no heading {shown(lacking[0])}")
    return PageText(source, claims, tuple(parts))


def check_free_text(text: str) -> None:
    """Refuse digits outside of code: numbers must come from results.

    Raises:
        UserError: there are some; the message shows where.
    """
    plain = _CODE.sub("", text)
    if number := re.search(r"\d+", plain):
        line = plain[plain.rfind("\n", 0, number.start()) + 1 :].split("\n", 1)[0]
        where = f"the number {number[0]} in {shown(line)}"
        raise UserError(
            f"{where} comes from nowhere: take it from a result, {{{{ ROW.COLUMN }}}}, or write it in words"
        )


def _claim(block: "nodes.CallBlock") -> tuple[str, Words, Words]:
    """Return the name of a claim, its sentence and its control."""
    from jinja2 import nodes

    name = block.call.args[0] if block.call.args else None
    bodies = [part.body for part in block.body if isinstance(part, nodes.Scope)]
    if not isinstance(name, nodes.Const) or len(bodies) != 2 or len(block.body) != 2:
        raise UserError(f"line {block.lineno}: write {{% claim NAME %}}")
    return str(name.value), _words_of(bodies[0]), _words_of(bodies[1])


def _words_of(body: list["nodes.Node"]) -> Words:
    """Return a sentence, with single spaces."""
    from jinja2 import nodes

    parts: list[str | Number] = []
    for node in _printed(body):
        parts.append(re.sub(r"\s+", " ", node.data) if isinstance(node, nodes.TemplateData) else _number(node))
    check_free_text("".join(part for part in parts if isinstance(part, str)))
    for place, strip in ((0, str.lstrip), (-1, str.rstrip)):
        if parts and isinstance(text := parts[place], str):
            parts[place] = strip(text)
    return tuple(part for part in parts if part != "")


def _number(node: "nodes.Node") -> Number:
    """Return what `ROW.COLUMN`, `ROW.COLUMN.mean` or either with `|f("FORMAT")` stands for."""
    from jinja2 import nodes

    form = ""
    inner: nodes.Node | None = node
    if isinstance(node, nodes.Filter) and node.name == "f" and len(node.args) == 1 and not node.kwargs:
        given, inner = node.args[0], node.node
        form = given.value if isinstance(given, nodes.Const) and isinstance(given.value, str) else "?"
    names: list[str] = []
    while isinstance(inner, nodes.Getattr):
        names.insert(0, inner.attr)
        inner = inner.node
    if not isinstance(inner, nodes.Name) or not 1 <= len(names) <= 2:
        raise UserError(f'line {node.lineno}: a number is {{{{ ROW.COLUMN }}}}, or {{{{ ROW.COLUMN|f("+.1f") }}}}')
    if not FORMAT.fullmatch(form):
        raise UserError(f"line {node.lineno}: {shown(form)} is no format: one is such as +.1f, .3f or d")
    return Number(inner.name, names[0], "".join(names[1:]), form)


def _printed(body: list["nodes.Node"]) -> Iterator["nodes.Node"]:
    """Yield what is printed, and claims."""
    from jinja2 import nodes

    for node in body:
        if isinstance(node, nodes.Output):
            yield from node.nodes
        elif (
            isinstance(node, nodes.CallBlock)
            and isinstance(node.call.node, nodes.Name)
            and node.call.node.name == "claim"
        ):
            yield node
        else:
            raise UserError(f"line {node.lineno}: only text, claims and {{{{ }}}} can stand there")


@cache
def _environment() -> "SandboxedEnvironment":
    from jinja2 import StrictUndefined, nodes
    from jinja2.ext import Extension
    from jinja2.lexer import Token, TokenStream
    from jinja2.parser import Parser
    from jinja2.sandbox import SandboxedEnvironment

    class Claims(Extension):
        """The tags of claims; and paragraphs may be wrapped in the template, not in the page."""

        tags = {"claim"}  # noqa: RUF012

        def parse(self, parser: Parser) -> nodes.Node:
            line = next(parser.stream).lineno
            name = nodes.Const(parser.stream.expect("name").value)
            says = parser.parse_statements(("name:control",), drop_needle=True)
            control = parser.parse_statements(("name:endclaim",), drop_needle=True)
            call = nodes.Call(nodes.Name("claim", "load"), [name], [], None, None)
            return nodes.CallBlock(call, [], [], [nodes.Scope(says), nodes.Scope(control)]).set_lineno(line)

        def filter_stream(self, stream: TokenStream) -> Iterator[Token]:
            for token in stream:
                yield Token(token.lineno, "data", _WRAPPED.sub(" ", token.value)) if token.type == "data" else token

    made = SandboxedEnvironment(
        extensions=[Claims], undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True, autoescape=False
    )
    made.filters["f"] = lambda value, form: value  # numbers are put into claims by the page, with their formats
    return made
