"""The same study of other policies: its stages and rows for each of them, as a study file of its own."""

import hashlib
import re
import shlex
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path

import yaml

from analysis.findings.page_template import Number, template_of
from analysis.findings.study_file import (
    EACH,
    LONGEST_NAME,
    Primary,
    ResultFigure,
    ResultTable,
    Stage,
    Study,
    StudyFile,
    TableRow,
    name_of,
    read_study,
    read_study_file,
)
from common.files import make_folder, sha256, write_text
from common.user_error import UserError

SHIPPED = Path("policies")
TAKE_A_FOLDER = (
    "analyze_dynamics.py", "extract_activations.py", "intervene.py", "saliency.py", "semantic_clusters.py agreement",
    "simulate.py quality", "train_sparse_autoencoder.py", "train_world_model.py",
)  # fmt: skip
"""Commands that look up policies in --policies-dir."""

_EACH = f"{{{EACH}}}"

_TEXT = """# {title}

The stages of `{study}` with {policies} in place of its own policies. `study.py --policies` wrote this text: it shows
the columns that the claims of that study are about.

{{{{ primary }}}}

## Findings

{claims}
{parts}## What this does not show

- What the study's own page says of its policies: read there what its commands do, and what they cannot show.
- Anything about a kind of training: every row is of one training.
{left_out}
{{{{ made }}}}
"""


def write_study_of(
    study: Path, policies: Sequence[str], policies_dir: Path, folder: Path, say: Callable[[str], None]
) -> Path:
    """Write a study of other policies, with the text of its page beside it, and return its file.

    A stage of one policy is there for each of the others, and so is what reads its results. A stage that reads more,
    such as checkpoints or several policies that play together, is left out with all that needs it. Files that are
    there and differ have been edited, and are kept.

    Args:
        policies: names of files in `policies_dir`, without `.safetensors`.
        folder: to write to; created if necessary.
        say: is given a line about what was done.

    Raises:
        UserError: the study is not valid, or no claim is about a stage of one policy.
    """
    whole, as_written = read_study(study), read_study_file(study)
    known = {path.stem for stage in whole.stages for path in map(Path, stage.reads) if path.suffix == ".safetensors"}
    stages = _Stages(known, tuple(policies), policies_dir)
    for stage in _without_other_values(as_written.stages, known):
        stages.add(stage)
    claims, primary = _claims(whole, stages)
    tables, figures = list(_tables(whole, stages)), list(_figures(whole, stages))
    written = StudyFile(
        stages=tuple(stages.new.values()), claims={name: claim.rows for name, claim in claims.items()},
        tables=tuple(tables), figures=tuple(figures), primary=tuple(primary),
    )  # fmt: skip
    if not claims:
        raise UserError(f"{study} makes no claim about a stage that reads one policy: --policies leaves nothing of it")
    name = _name(name_of(study), policies)
    parts = [f"{{{{ {part} }}}}\n\n" for part in ("tables", "figures") if getattr(written, part)]
    text = _TEXT.format(
        title=f"`{study.stem}` with {_code(policies)}", study=study.as_posix(), policies=_code(policies),
        claims="\n".join(claim.text(name) for name, claim in claims.items()), parts="".join(parts),
        left_out=f"- What these stages show, which are left out since they, or stages that they need, read more "
        f"than one policy's file: {_code(stages.left_out)}.\n"
        if stages.left_out else "",
    )  # fmt: skip
    path = folder / f"{name}.yaml"
    contents = {template_of(path): text, path: yaml.safe_dump(asdict(written), sort_keys=False, width=110)}
    hashes = {file: hashlib.sha256(content.encode()).hexdigest() for file, content in contents.items()}
    edited = [file for file, own in hashes.items() if file.exists() and sha256(file) != own]
    if edited:
        say(f"{edited[0]} has been edited, or {study} has: it is kept; remove it to have it written again")
        return path
    make_folder(folder)
    for file, content in contents.items():
        write_text(file, content)
    say(f"the study of these policies: {path}")
    return path


class _Stages:
    """Stages of other policies in place of those of a study.

    Attributes:
        new: by name, in which {each} stands for the policy, if it is of one.
        left_out: names of stages of the study without a successor.
    """

    def __init__(self, known: set[str], policies: tuple[str, ...], policies_dir: Path):
        self.policies = policies
        self.new: dict[str, Stage] = {}
        self.left_out: list[str] = []
        self._dir = policies_dir
        names = "|".join(map(re.escape, sorted(known, key=len, reverse=True))) or "(?!)"  # which is nowhere
        self._known = re.compile(rf"(?<!\w)({names})(?!\w)")
        self._gone: set[str] = set()
        # By a name of a stage of the study, with or without {each}: its name in `new`, and the policies that it is of.
        self._became: dict[str, str] = {}
        self._of: dict[str, set[str]] = {}

    def add(self, stage: Stage) -> None:
        """Add what becomes of a stage of the study, whose `each` are policies if it has any."""
        own = [self.with_policy(read, _EACH) for read in stage.reads]
        needs = [name for name in (*self._became, *self._gone) if f"{{{name}}}" in stage.run]
        originals = {stage.name.replace(_EACH, value): value for value in stage.each} or {stage.name: ""}
        names = set(self._known.findall(" ".join((stage.run, *stage.reads)))) | ({_EACH} if stage.each else set())
        names = names.union(*(self._of.get(name, set()) for name in needs))
        reads_more = any(Path(read).name != f"{_EACH}.safetensors" for read in own)
        if reads_more or len(names) > 1 or not self._gone.isdisjoint(needs):
            self.left_out += originals
            self._gone |= {stage.name, *originals}
            return
        run = self._run(stage, needs, of_policy=bool(names))
        name = self.with_policy(stage.name, _EACH)
        name = name if _EACH in name or not names else f"{name}_{_EACH}"
        same = [other.name for other in self.new.values() if other.run == run]
        while not same and name in self.new:  # `clear` beside `clear_{each}`
            name = f"other_{name}"
        name = same[0] if same else name
        reads = tuple(f"{self._dir.as_posix()}/{_EACH}.safetensors" for _ in own)
        self.new[name] = replace(stage, name=name, run=run, reads=reads, each=self.policies if names else ())
        self._became |= dict.fromkeys((stage.name, *originals), name)
        self._of |= {stage.name: names} | {one: {value} if value else names for one, value in originals.items()}

    def _run(self, stage: Stage, needs: Iterable[str], of_policy: bool) -> str:
        """The command with other policies, from the folder that they lie in, and from what became of other stages."""
        run = stage.run
        for name in needs:
            run = run.replace(f"{{{name}}}", f"{{{self._became[name]}}}")
        for read in stage.reads:
            run = run.replace(read, f"{self._dir.as_posix()}/{Path(read).name}")
        run = self.with_policy(run, _EACH)
        if of_policy and run.startswith(TAKE_A_FOLDER) and (self._dir != SHIPPED or "--policies-dir" in run):
            run += f" --policies-dir {shlex.quote(self._dir.as_posix())}"
        return run

    def with_policy(self, text: str, policy: str) -> str:
        """Put a policy in the place of every policy of the study."""
        return self._known.sub(policy, text)

    def successors(self, stages: Iterable[Stage]) -> list[str]:
        """Return the names in `new` of what some of the study's stages have become."""
        return list(dict.fromkeys(self._became[stage.name] for stage in stages if stage.name in self._became))

    def instances(self, name: str) -> list[tuple[str, str]]:
        """Return the policy, "" if it is of none, and the stage for each of those that a name in `new` stands for."""
        return [(policy, name.replace(_EACH, policy)) for policy in self.new[name].each] or [("", name)]


@dataclass
class _Claim:
    """What becomes of the claims about one row.

    Attributes:
        rows: that of each policy, by a name in the text.
        policies: of these rows.
        says, control: what is said of it, in sentences and in controls.
    """

    about: str
    rows: dict[str, TableRow]
    policies: list[str]
    says: dict[str, Number] = field(default_factory=dict)
    control: dict[str, Number] = field(default_factory=dict)

    def text(self, name: str) -> str:
        """Return the claim as it stands in a template."""
        control = {column: number for column, number in self.control.items() if column not in self.says}
        says, against = self._sentence(self.says), self._sentence(control) if control else "none of its own."
        return f"{{% claim {name} %}}\n{self.about}: {says}\n{{% control %}}\n{against}\n{{% endclaim %}}\n"

    def _sentence(self, numbers: dict[str, Number]) -> str:
        return "; ".join(
            (f"`{policy}`: " if policy else "") + ", ".join(_shown(row, column, numbers[column]) for column in numbers)
            for row, policy in zip(self.rows, self.policies, strict=True)
        ) + "."  # fmt: skip


def _shown(row: str, column: str, number: Number) -> str:
    form = f'|f("{number.form}")' if number.form else ""
    return f"`{column}` {{{{ {row}.{column}{form} }}}}"


def _claims(study: Study, stages: _Stages) -> tuple[dict[str, _Claim], list[Primary]]:
    """Return the claims about each policy's rows, by name, and those that are primary outcomes."""
    claims: dict[tuple[object, ...], _Claim] = {}
    for claim in study.claims:
        for name, row in claim.rows.items():
            if row.minus:  # a difference between policies
                continue
            for successor in stages.successors(study.named(row.stage)):
                new = claims.setdefault(_key(successor, row), _claim(successor, row, stages))
                for numbers, sentence in ((new.says, claim.says), (new.control, claim.control)):
                    numbers |= {
                        column: number
                        for number in sentence
                        if isinstance(number, Number) and number.row == name and (column := _column(number, row))
                    }
    named = {f"claim_{place}": claim for place, claim in enumerate(claims.values(), start=1) if claim.says}
    tested = {
        _key(successor, outcome): outcome.column
        for outcome in study.primary
        if not outcome.minus
        for successor in stages.successors(study.named(outcome.stage))
    }
    primary = [
        Primary(row.stage, row.file, row.where, column=tested[key])
        for key, claim in claims.items()
        if key in tested and tested[key] in claim.says
        for row in claim.rows.values()
    ]
    return named, primary


def _key(successor: str, row: TableRow) -> tuple[object, ...]:
    return successor, row.file, *sorted(row.where.items())


def _claim(successor: str, row: TableRow, stages: _Stages) -> _Claim:
    instances = stages.instances(successor)
    rows = {
        f"row_{place}": TableRow(stage, row.file, _where(row.where, policy, stages))
        for place, (policy, stage) in enumerate(instances, start=1)
    }
    about = ", ".join((successor.replace(f"_{_EACH}", "").replace(_EACH, ""), row.file, *row.where.values()))
    return _Claim(f"`{about}`", rows, [policy for policy, _ in instances])


def _column(number: Number, row: TableRow) -> str | None:
    """Return the column of one stage's row that says what a number says of one or several, if there is one."""
    if not row.several or number.what == "mean":
        return number.column
    return number.what if number.column == "value" and number.what != "n" else None


def _tables(study: Study, stages: _Stages) -> Iterator[ResultTable]:
    for table in study.tables:
        for successor in stages.successors(study.named(table.stage)):
            pattern = successor.replace(_EACH, "*")
            others = [stage for name in stages.new if name != successor for _, stage in stages.instances(name)]
            alone = any(fnmatchcase(other, pattern) for other in others)
            for stage in [stage for _, stage in stages.instances(successor)] if alone else [pattern]:
                yield replace(
                    table, title=f"{table.title} (`{stage}`)", stage=stage, where=_where(table.where, "*", stages)
                )


def _figures(study: Study, stages: _Stages) -> Iterator[ResultFigure]:
    drawn = {(successor, figure.file): figure for figure in study.figures
             for successor in stages.successors(study.named(figure.stage))}  # fmt: skip
    for (successor, _), figure in drawn.items():
        for policy, stage in stages.instances(successor):
            yield replace(figure, stage=stage, caption=stages.with_policy(figure.caption, policy))


def _where(where: dict[str, str], policy: str, stages: _Stages) -> dict[str, str]:
    return {column: stages.with_policy(value, policy) for column, value in where.items()}


def _without_other_values(stages: Iterable[Stage], known: set[str]) -> Iterator[Stage]:
    """Yield stages whose `each` are policies, with a stage for each other value."""
    for stage in stages:
        if set(stage.each) <= known:
            yield stage
            continue
        for value in stage.each:
            name, run, *reads = (text.replace(_EACH, value) for text in (stage.name, stage.run, *stage.reads))
            yield replace(stage, name=name, run=run, reads=tuple(reads), each=())


def _name(study: str, policies: Sequence[str]) -> str:
    name = "_".join((study, *policies))
    return name if len(name) <= LONGEST_NAME else f"{study[:60]}_{zlib.crc32(name.encode()):08x}"


def _code(names: Iterable[str]) -> str:
    *others, last = (f"`{name}`" for name in names)
    return f"{', '.join(others)} and {last}" if others else last
