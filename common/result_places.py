"""One rule for where results go: `-o FOLDER --name NAME` writes FOLDER/NAME, in every script.

Scripts that write one page or video may also be given its file: `-o FOLDER/NAME.html`.
"""

from pathlib import Path
from typing import Annotated

import tyro

from common.user_error import UserError

OutputFolder = Annotated[Path, tyro.conf.arg(name="output-dir", aliases=["-o", "--output"])]
"""Type of the option that names the folder in which results get a folder of their own."""
OutputPlace = Annotated[Path | None, tyro.conf.arg(name="output-dir", aliases=["-o", "--output"])]
"""Type of an option that has no fixed default."""


def result_folder(output: Path | None, name: str | None, usual: Path) -> Path:
    """Return the folder of one run.

    `-o` alone names the run's folder itself, as it did before there was a `--name`.

    Args:
        usual: the folder if nothing is said; its parent is the default of `-o`.
    """
    if name is None:
        return output or usual
    return (output or usual.parent) / name


def result_file(output: Path | None, name: str | None, usual: Path) -> Path:
    """Return the file of one page or video.

    Args:
        usual: the file if nothing is said; its folder is the default of `-o`, and its suffix that of `--name`.

    Raises:
        UserError: `-o` names a file, and `--name` another one.
    """
    if output is not None and output.suffix and not output.is_dir():
        if name is not None:
            raise UserError(f"-o {output} is a file: give the folder that --name {name} goes into")
        return output
    suffix = "" if name is None or Path(name).suffix == usual.suffix else usual.suffix
    return (output or usual.parent) / (usual.name if name is None else f"{name}{suffix}")
