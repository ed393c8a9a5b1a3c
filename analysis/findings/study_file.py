"""A study: stages to run with the scripts of this project, and the claims that are made from their results.

The text of its page is a template beside it; see `page_template`.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from pydantic import ConfigDict, TypeAdapter, ValidationError

from analysis.findings.page_template import (
    EMPTY,
    FORMAT,
    Number,
    PageText,
    Words,
    check_free_text,
    read_template,
    template_of,
)
from analysis.findings.stage_commands import check_command, command_words, places, seeds_of, with_own_seed
from common.checked_json import first_fault
from common.user_error import UserError
from common.yaml_file import one_line, read_yaml, shown

HERE = "here"
"""Stands for a stage's own folder in its command."""
EACH = "each"
"""Stands for one of the values that a stage is run for."""

OVER_TRAININGS = ("mean", "low", "high", "p", "q", "q_primary", "n")
"""What can be said of a column over several stages; see `analysis.findings.results.mean_over_trainings`."""
Q_PRIMARY = "q_primary"
"""What can be said of a primary outcome only: p corrected for the primary outcomes, and nothing else."""
LEVELS = ("score", "accuracy", "twin")
"""Columns whose mean over trainings is no test: nobody asks whether an AUC, or how long agents live, is 0."""
LEVEL_OUTCOMES = ("edited_ticks", "off_manifold", "within_data")
"""Outcomes at once of which the same is true: in how many ticks agents were edited, how far edited states lie from
recorded ones, and which share of a change is a usual one."""
DIVERGENCE = "kl_"
"""How names of divergences begin, of which it is true as well: they are above 0 whatever is changed. What can be tested
is how they differ from those of controls."""
OUTCOME = "outcome"
"""Column by which rows of one table differ that are of one family."""
_DIFFERENCE = "_difference"
BY_EPISODE = {"effects.tsv": "effects_by_episode.tsv"}
"""Tables whose numbers are means over episodes, and the table beside each that holds the episodes."""

_STRICT = ConfigDict(strict=True, extra="forbid")
LONGEST_NAME = 80
_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_.-]{{0,{LONGEST_NAME - 1}}}")


@dataclass(frozen=True)
class Stage:
    """One command of a study."""

    __pydantic_config__ = _STRICT

    name: str  # of the stage and of its folder
    run: str
    """A script of this project and its options; {here} is the stage's folder, {parent} the one above it, and {OTHER}
    the folder of another stage, which is run before."""
    minutes: float  # that it takes on two cores, as an estimate
    reads: tuple[str, ...] = ()
    """Files and folders that the results depend on, such as policies, besides folders of other stages."""
    resume: str | None = None
    """Option with which the script continues an interrupted run; empty if the same command does so; None if an
    interrupted run must begin again."""
    each: tuple[str, ...] = ()
    """Values for each of which the stage is run, as a stage of its own; {each} stands for the value in its name,
    command and files. A command that plays episodes and says no --seed gets one of its own for each, so that trainings
    do not share their worlds."""

    def needs(self, names: set[str]) -> set[str]:
        """Return which of some stages' folders its command names."""
        return {place for place in places(self.run) if place in names}


@dataclass(frozen=True)
class TableRow:
    """One row of a table of results, or the mean over the same row of several stages."""

    __pydantic_config__ = _STRICT

    stage: str  # whose folder holds the table; with * or ?, all stages of that pattern, which are taken for trainings
    file: str
    where: dict[str, str] = field(default_factory=dict)  # contents of columns that the row has, and no other row
    minus: str | None = None
    """With several stages: the pattern of others, whose mean is subtracted; their tables have the same row."""

    @property
    def several(self) -> bool:
        """Whether the stage is a pattern."""
        return any(sign in self.stage for sign in "*?")

    def key(self, column: str) -> tuple[object, ...]:
        """Return what tells a column's mean from other means; conditions are the same in any order."""
        return self.stage, self.minus, self.file, *sorted(self.where.items()), column

    def is_level(self, column: str) -> bool:
        """Tell whether a column's mean is no test: it is not 0 where there is no effect either."""
        outcome = self.where.get(OUTCOME, "")
        of_level = outcome in LEVEL_OUTCOMES or outcome.startswith(DIVERGENCE)
        at_a_dose = self.where.get("measure") != "slope"
        return column in LEVELS or (of_level and at_a_dose and not column.endswith(_DIFFERENCE))

    @property
    def patterns(self) -> tuple[str, ...]:
        """The stages' names or patterns, those of `minus` too."""
        return (self.stage, self.minus) if self.minus else (self.stage,)


@dataclass(frozen=True)
class Primary(TableRow):
    """An outcome that the study is made to test, named before it is played: a row, and the column."""

    column: str = "value"

    def __str__(self) -> str:
        where = ", ".join(f"{name} {value}" for name, value in self.where.items())
        minus = f" minus `{self.minus}`" if self.minus else ""
        return f"`{self.column}` of `{where or self.file}`, `{self.stage}`{minus}"


@dataclass(frozen=True)
class Claim:
    """One sentence, with its numbers taken from results."""

    name: str
    says: Words
    control: Words  # what could have refuted it
    rows: dict[str, TableRow]

    @property
    def numbers(self) -> list[Number]:
        """Those of the sentence and of its control."""
        return [part for part in (*self.says, *self.control) if isinstance(part, Number)]

    def columns(self, name: str) -> list[str]:
        """Return the columns that are said of a row, without what is said of them over several stages."""
        return list(dict.fromkeys(number.column for number in self.numbers if number.row == name))

    def tested(self, name: str) -> list[str]:
        """Return those that the sentence says, not only its control, and those of which a q is said.

        Over several stages, levels are left out: that a mean score is not 0 is no finding, and would make all others
        look surer. The p of a single stage's table is that of a test which the stage itself made.
        """
        sentence = [number for number in self.says if isinstance(number, Number)]
        with_q = [number for number in self.control if isinstance(number, Number) and number.what.startswith("q")]
        columns = dict.fromkeys(number.column for number in sentence + with_q if number.row == name)
        return [column for column in columns if not (self.rows[name].several and self.rows[name].is_level(column))]


@dataclass(frozen=True)
class ResultTable:
    """Rows of stages' tables."""

    __pydantic_config__ = _STRICT

    title: str
    stage: str  # as in `TableRow`
    file: str  # as in `TableRow`
    columns: tuple[str, ...]  # to show; a colon and a format, such as `value:+.1f`, round their numbers
    where: dict[str, str] = field(default_factory=dict)
    """Contents of columns that rows must have; * stands for any text."""
    across: str | None = None
    """A column whose contents become columns, one for each, in place of rows. `columns` are then those that name a row;
    every cell has the value and its interval, from the columns value, low and high."""
    digits: int = 2  # with `across`: after the decimal point
    largest_first: str | None = None
    """A column by whose numbers the rows of all stages are ordered; by default they stay in order."""


@dataclass(frozen=True)
class ResultFigure:
    """A figure of a stage."""

    __pydantic_config__ = _STRICT

    stage: str
    file: str  # PNG in its folder
    caption: str


@dataclass(frozen=True)
class Forest:
    """A forest plot: one row of results in every training of several kinds."""

    __pydantic_config__ = _STRICT

    title: str
    axis: str  # what the number is, with its unit
    file: str  # as in `TableRow`; the number's columns are value, low and high
    where: dict[str, str]  # as in `TableRow`
    groups: dict[str, str]  # pattern of the stages of each kind, by name
    control: str | None = None  # column of the same row whose mean over the trainings is drawn beside theirs

    @property
    def rows(self) -> list[TableRow]:
        """Return the row of each group."""
        return [TableRow(pattern, self.file, self.where) for pattern in self.groups.values()]


@dataclass(frozen=True)
class StudyFile:
    """What a study file holds, without the page's text; rows of each claim by the claim's name."""

    __pydantic_config__ = _STRICT

    stages: tuple[Stage, ...]
    claims: dict[str, dict[str, TableRow]]
    tables: tuple[ResultTable, ...] = ()
    forests: tuple[Forest, ...] = ()
    figures: tuple[ResultFigure, ...] = ()
    primary: tuple[Primary, ...] = ()


@dataclass(frozen=True)
class Study:
    """A study.

    Attributes:
        stages: in the order in which they are run.
        tables, forests, figures: for the parts of the page of these names.
        primary: the outcomes that it is made to test. The page says since when they have been named.
    """

    stages: tuple[Stage, ...]
    claims: tuple[Claim, ...] = ()
    text: PageText = EMPTY
    tables: tuple[ResultTable, ...] = ()
    forests: tuple[Forest, ...] = ()
    figures: tuple[ResultFigure, ...] = ()
    primary: tuple[Primary, ...] = ()

    def named(self, pattern: str) -> list[Stage]:
        """Return the stages of that name, or those that fit a pattern with * and ?."""
        return [stage for stage in self.stages if fnmatchcase(stage.name, pattern)]

    @property
    def rows(self) -> list[TableRow]:
        """Those of all claims and forest plots."""
        rows = [row for claim in self.claims for row in claim.rows.values()]
        return rows + [row for forest in self.forests for row in forest.rows]

    @property
    def sources(self) -> "list[TableRow | ResultTable | ResultFigure]":
        """All that the page shows of stages."""
        return [*self.rows, *self.tables, *self.figures]

    @property
    def shown_files(self) -> list[tuple[str, str]]:
        """The stage and the file of every table and figure that the page needs, each once, in order."""
        files = {(stage.name, source.file) for source in self.sources for stage in self.named(source.stage)}
        for row in self.rows:
            stages = [stage.name for pattern in row.patterns for stage in self.named(pattern)]
            files |= {(stage, row.file) for stage in stages}
            if row.several and row.file in BY_EPISODE:
                files |= {(stage, BY_EPISODE[row.file]) for stage in stages}
        return sorted(files)

    def seeds(self, commands: Mapping[str, str]) -> dict[str, frozenset[str]]:
        """Return the seeds of the worlds of each stage, given the stages' commands."""
        names = {stage.name for stage in self.stages}
        needs = {stage.name: stage.needs(names) for stage in self.stages}
        return seeds_of({stage.name: commands.get(stage.name, stage.run) for stage in self.stages}, needs)


def name_of(study: Path) -> str:
    """Return the name of a study, which its folder of results and its page have: that of its file.

    Raises:
        UserError: it cannot be one of a folder, as with `..yaml`.
    """
    if not _NAME.fullmatch(study.stem):
        raise UserError(f"{study} is no name of a study: must be of letters, digits, '_', '-' and '.', as memory.yaml")
    return study.stem


def read_study(path: Path) -> Study:
    """Read a study file and the template beside it, with a stage for each value of `each`.

    Raises:
        UserError: the file is no study, a name stands for nothing, or a sentence has a number of its own: those must
            come from results.
    """
    file, text = read_study_file(path), read_template(template_of(path))
    try:
        stages = tuple(_one_for_each(file.stages))
        if lost := sorted(file.claims.keys() ^ text.claims.keys()):
            where = "its rows are missing" if lost[0] in text.claims else "the page does not say it"
            raise UserError(f"the claim {shown(lost[0])}: {where}")
        claims = tuple(Claim(name, *sentences, file.claims[name]) for name, sentences in text.claims.items())
        parts = {**vars(file), "stages": stages, "claims": claims, "text": text}
        study = Study(**parts)
        _check_stages(study.stages)
        _check(study)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    return study


def read_study_file(path: Path) -> StudyFile:
    """Read a study file as it stands, without a check of what it means.

    Raises:
        UserError: it is no YAML, or not that of a study.
    """
    content = read_yaml(path, "the name of a study file")
    try:
        return TypeAdapter(StudyFile).validate_json(json.dumps(content, default=str))
    except ValidationError as error:
        raise UserError(f"{path} is no study: {one_line(first_fault(error))}") from None


def check_apart(stages: Sequence[str], seeds: Mapping[str, frozenset[str]], file: str) -> None:
    """Refuse trainings of the same worlds, for means over them of a table that does not tell worlds apart.

    Args:
        stages: names of the stages, each a training.
        seeds: of the worlds of each.
    """
    for place, name in enumerate(stages):
        if other := next((earlier for earlier in stages[:place] if seeds[earlier] & seeds[name]), None):
            raise UserError(
                f"{other} and {name} play the same worlds (seed {min(seeds[other] & seeds[name])}), and {file} does "
                "not say what came of each: no interval over trainings holds. Give each a --seed of its own"
            )


def _one_for_each(stages: tuple[Stage, ...]) -> Iterator[Stage]:
    for stage in stages:
        if stage.each and f"{{{EACH}}}" not in stage.name:
            raise UserError(f"the stage {stage.name} is run for each of several values: put {{each}} into its name")
        for value in stage.each or (None,):

            def given(text: str, value: str | None = value) -> str:
                return text if value is None else text.replace(f"{{{EACH}}}", value)

            reads, name, run = tuple(given(text) for text in stage.reads), given(stage.name), given(stage.run)
            command_words(run)  # refuses open quotes
            run = run if value is None else with_own_seed(run, name)
            yield Stage(name, run, stage.minutes, reads, stage.resume)


def _check_stages(stages: Sequence[Stage]) -> None:
    names = [stage.name for stage in stages]
    for place, stage in enumerate(stages):
        if not _NAME.fullmatch(stage.name):
            raise UserError(f"the stage {shown(stage.name)}: names have letters, digits, '_', '-' and '.' only")
        if stage.name.endswith((".log", ".json", ".lock")):
            raise UserError(f"the stage {stage.name} has the name of a file of the study: call it something else")
        if names.count(stage.name) > 1:
            raise UserError(f"two stages are called {stage.name}")
        if not stage.minutes > 0:
            raise UserError(f"the stage {stage.name} takes {stage.minutes} minutes: must be above 0")
        before = {HERE, "parent", *names[:place]}
        if unknown := [place for place in places(stage.run) if place not in before]:
            raise UserError(f"the stage {stage.name} names {{{unknown[0]}}}, which is no stage before it")
        if HERE not in places(stage.run) and "parent" not in places(stage.run):
            raise UserError(f"the stage {stage.name} writes nothing to {{here}}: name it in an option for its output")
        try:
            check_command(stage.run, stage.resume)
        except UserError as error:
            raise UserError(f"the stage {stage.name}: {error}") from None


def _check(study: Study) -> None:
    """Refuse what the page shows of stages if it is not there, or cannot be said."""
    for source in study.sources:
        scripts = {command_words(stage.run)[0]: stage.name for stage in study.named(source.stage)}
        if not scripts:
            raise UserError(f"{shown(source.stage)} is no stage")
        if len(scripts) > 1:  # refused here, not once hours of stages are over
            one, other, *_ = scripts.values()
            raise UserError(
                f"{shown(source.stage)} fits {one} and {other}, whose scripts differ, so not both write "
                f"{shown(source.file)}: write a pattern that only fits those that do"
            )
        if Path(source.file).name != source.file or source.file == "..":
            raise UserError(f"{shown(source.file)} must be the name of a file in the stage's folder")
    for row in study.rows:
        if row.minus and not study.named(row.minus):
            raise UserError(f"{shown(row.minus)} is no stage")
    for table in study.tables:
        if unknown := [column for column in table.columns if not FORMAT.fullmatch(column.partition(":")[2])]:
            raise UserError(f"the column {shown(unknown[0])}: a format is such as +.1f, .3f or d")
        if table.across is not None and table.largest_first is not None:
            raise UserError(f"the table {shown(table.title)} has across, so its rows cannot be ordered by a column")
        if not 0 <= table.digits <= 9:
            raise UserError(f"the table {shown(table.title)} has {table.digits} digits: must be 0 to 9")
    if alone := [row.stage for forest in study.forests for row in forest.rows if not row.several]:
        raise UserError(f"{shown(alone[0])} is one stage: the groups of a forest plot are patterns of several")
    for claim in study.claims:
        _check_claim(claim, study.primary)
    said = [
        row.key(column) for claim in study.claims for name, row in claim.rows.items() for column in claim.columns(name)
    ]
    if untold := [primary for primary in study.primary if primary.key(primary.column) not in said]:
        raise UserError(f"the primary outcome {untold[0]} is in no claim: say what was found, whatever it is")
    seeds = study.seeds({})
    for row in study.rows:
        if row.several and row.file not in BY_EPISODE:  # whose tables do not tell one world from another
            check_apart([stage.name for pattern in row.patterns for stage in study.named(pattern)], seeds, row.file)
    for part in ("tables", "forests", "figures"):
        if (part in study.text.parts) != bool(getattr(study, part)):
            raise UserError(
                f"the study has {part} that its page does not show, or the other way round: {{{{ {part} }}}}"
            )
    texts = [table.title for table in study.tables]
    texts += [words for forest in study.forests for words in (forest.title, forest.axis)]
    for text in (*texts, *(figure.caption for figure in study.figures)):
        check_free_text(text)


def _check_claim(claim: Claim, primary: tuple[Primary, ...]) -> None:
    for name, row in claim.rows.items():
        if row.minus and not row.several:
            raise UserError(f"the row {name} is of one stage, so it has no mean to subtract from: leave out minus")
    for number in claim.numbers:
        if number.row not in claim.rows:
            raise UserError(f"{number} is of no row of the claim {claim.name}")
        row = claim.rows[number.row]
        if row.several and number.what not in OVER_TRAININGS:
            known = ", ".join(OVER_TRAININGS)
            raise UserError(f"{number} is over several stages: must be a row, a column and one of {known}")
        if number.what and not row.several:
            raise UserError(f"{number} is of one stage: must be a row and a column")
        what, column = (number.what, number.column) if row.several else (number.column, "value")
        if what == Q_PRIMARY and row.key(column) not in [outcome.key(outcome.column) for outcome in primary]:
            raise UserError(f"{number} is no primary outcome: name it under `primary`, or say q")
