"""Run a study from trained policies to a page of findings, and check such a page number by number.

    python study.py studies/memory.yaml                     # run what is missing, and write docs/findings/memory.md
    python study.py studies/memory.yaml --plan              # only say what would be run, and how long it would take
    python study.py studies/memory.yaml --ray-address auto  # stages side by side on a Ray cluster
    python study.py studies/memory.yaml --policies A,B      # the same stages with other policies
    python study.py verify docs/findings/memory.md          # find every number of a page in the results beside it
    python study.py verify docs/findings/memory.md --rewrite    # write it again from these results
    python study.py claims                                  # the table of all claims of all pages in docs/findings.md

Stages are commands of the other scripts. Finished ones are skipped as long as their commands and all that they read are
unchanged; after an interruption, the same command goes on. See docs/findings.md.
"""

import common.environment_check  # isort: skip  # noqa: F401 (must come first)

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from common import command_line
from common.argument_checks import check_file_name, split
from common.number_text import plural
from common.user_error import UserError

if TYPE_CHECKING:
    from analysis.findings.crews import RayCrew


@dataclass(frozen=True)
class Arguments:
    """Arguments of study.py."""

    study: Annotated[Path, tyro.conf.Positional]
    """Study file (YAML), such as studies/memory.yaml."""
    results_dir: Path = Path("study_results")
    """Parent folder of the study's results; those of each stage are in a folder of their own."""
    pages_dir: Path | None = None
    """Folder of the page, which is named after the study file; by default docs/findings, with --policies
    the folder findings in --results-dir."""
    policies: str | None = None
    """Comma-separated names of policies in place of the study's own. The study of these is written beside the results,
    as a file of its own, and its page shows the same rows of results for each of them."""
    policies_dir: Path | None = None
    """Folder of the policies in --policies, by default policies."""
    ray_address: str | None = None
    """Run stages that do not need each other side by side on a Ray cluster whose machines share this folder: local,
    auto or HOST:PORT, as in extract_activations.py. By default one after the other on this machine."""
    stage_cores: int | None = None
    """Cores of the cluster that each stage gets, at least 1; by default 2. Only with --ray-address."""
    plan: bool = False
    """Only list the stages, what would be done with each, and the time."""


@dataclass(frozen=True)
class VerifyArguments:
    """Arguments of `study.py verify`."""

    page: Annotated[Path, tyro.conf.Positional]
    """Page of a study."""
    rewrite: bool = False
    """Write the page again from the results beside it, after a change of how pages or their statistics are made."""


@dataclass(frozen=True)
class ClaimsArguments:
    """Arguments of `study.py claims`."""

    pages_dir: Path = Path("docs/findings")
    """Folder of the pages."""
    file: Path = Path("docs/findings.md")
    """File that holds the table, between two lines that mark its place."""


def main() -> None:
    """Run a study, verify a page, or list all claims."""
    if sys.argv[1:2] == ["verify"]:
        verify(command_line.parse(VerifyArguments, __doc__, args=sys.argv[2:]))
        return
    if sys.argv[1:2] == ["claims"]:
        listed = command_line.parse(ClaimsArguments, __doc__, args=sys.argv[2:])

        from analysis.findings.page import write_claims

        print(f"{write_claims(listed.file, listed.pages_dir)} claims: {listed.file}")
        return
    arguments = command_line.parse(Arguments, __doc__)

    from analysis.findings.page import check_replaceable, write_page
    from analysis.findings.running import StudyRun, overview, plan_lines
    from analysis.findings.study_file import name_of, read_study

    path = study_path(arguments)
    name = name_of(path)
    study = read_study(path)
    default = Path("docs/findings") if arguments.policies is None else arguments.results_dir / "findings"
    page = (arguments.pages_dir or default) / f"{name}.md"
    check_replaceable(page)
    run = StudyRun(study, arguments.results_dir / name, Path(__file__).parent)
    plans = run.plan()
    print("\n".join(plan_lines(plans)))
    if arguments.plan:
        return
    crew = crew_of(arguments, run.scripts)
    with overview(plans) as report:
        history = run.run(plans, report, crew)
    numbers = write_page(path, run.folder, history, page)
    print(f"{plural(len(study.claims), 'claim')} with {plural(numbers, 'number')}: {page}")


def study_path(arguments: Arguments) -> Path:
    """Return the study file: the one named, or the one that is written for other policies."""
    if arguments.policies is None:
        if arguments.policies_dir is not None:
            raise UserError("--policies-dir is the folder of those in --policies: add --policies, or leave it out")
        return arguments.study
    from agent_zoo.checkpoint_files import SUFFIX
    from analysis.findings.other_policies import SHIPPED, write_study_of

    policies = tuple(dict.fromkeys(split(arguments.policies)))
    if not policies:
        raise UserError("--policies names none: give names such as A,B")
    folder = SHIPPED if arguments.policies_dir is None else arguments.policies_dir
    for name in policies:
        check_file_name(name, "--policies")
        if not (path := folder / f"{name}{SUFFIX}").is_file():
            raise UserError(f"{path} does not exist: --policies names files in --policies-dir")
    return write_study_of(arguments.study, policies, folder, arguments.results_dir, print)


def crew_of(arguments: Arguments, scripts: Path) -> "RayCrew | None":
    """Return what runs the stages: a Ray cluster, or None for this machine."""
    if arguments.ray_address is None:
        if arguments.stage_cores is not None:
            raise UserError("--stage-cores divides a Ray cluster: add --ray-address, or leave it out")
        return None
    from analysis.findings.crews import RayCrew

    return RayCrew(scripts, arguments.ray_address, 2 if arguments.stage_cores is None else arguments.stage_cores)


def verify(arguments: VerifyArguments) -> None:
    """Check every number of a page, or write it again."""
    from analysis.findings.page import rewrite_page, verify_page

    page = arguments.page
    if arguments.rewrite:
        print(f"{page}: written again, with {rewrite_page(page)} numbers")
    else:
        print(f"{page}: all {verify_page(page)} numbers are those of the results beside it")


if __name__ == "__main__":
    command_line.run(main)
