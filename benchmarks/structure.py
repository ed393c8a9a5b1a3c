"""Structure of the code: files and lines by room, import cycles, and what each script reaches and takes for `--help`.

python -m benchmarks.structure
python -m benchmarks.structure --samples 5
"""

import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from common import command_line
from tests.house import ROOT, Arrows, circle, file_arrows, modules, room_arrows


@dataclass(frozen=True)
class Arguments:
    """Arguments of benchmarks/structure.py."""

    samples: int = 3
    """Number of times to run each script's --help; the median is printed, in seconds."""


def room_rows() -> list[tuple[str, str, str, str]]:
    """Return files, lines and the longest file of each sub-room, and of the scripts."""
    files: Counter[str] = Counter()
    lines: Counter[str] = Counter()
    longest: dict[str, tuple[int, str]] = {}
    for path in modules().values():
        name = path.relative_to(ROOT)
        room = str(name.parent) if len(name.parts) > 1 else "scripts"
        count = path.read_text().count("\n")
        files[room] += 1
        lines[room] += count
        longest[room] = max(longest.get(room, (0, "")), (count, name.name))
    return [
        (room, str(files[room]), str(lines[room]), f"{longest[room][1]} ({longest[room][0]})") for room in sorted(files)
    ]


def totals() -> Iterator[str]:
    """Yield the size of the house and of its tests, counted over all Python files that git knows."""
    listed = subprocess.check_output(["git", "ls-files", "*.py"], cwd=ROOT, text=True).splitlines()
    for name, of_tests in (("without tests", False), ("tests", True)):
        texts = [(ROOT / path).read_text() for path in listed if path.startswith("tests/") == of_tests]
        lines, types = (sum(text.count(sought) for text in texts) for sought in ("\n", "\n@dataclass"))
        yield f"{name}: {lines:,} lines in {len(texts)} files, {types} dataclasses"


def reached(name: str, arrows: Arrows) -> set[str]:
    """Return the modules that a module imports, directly or through others, anywhere in their files."""
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        new = arrows[waiting.pop()] - seen
        seen |= new
        waiting += new
    return seen


def help_seconds(script: Path, samples: int) -> float:
    """Return the median run time of a script's --help, in seconds."""

    def once() -> float:
        start = time.perf_counter()
        subprocess.run([sys.executable, script.name, "--help"], cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
        return time.perf_counter() - start

    return statistics.median(once() for _ in range(samples))


def main() -> None:
    """Print the tables."""
    arguments = command_line.parse(Arguments, __doc__)
    command_line.print_table(("room", "files", "lines", "longest file (lines)"), room_rows())
    between_files = file_arrows()
    for name, arrows in (("files", between_files), ("sub-rooms and loose files", room_arrows())):
        cycle = circle(arrows)
        count = sum(map(len, arrows.values()))
        print(f"{name}: {len(arrows)}, imports between them: {count}, circle: {' -> '.join(cycle) or 'none'}")
    stages = sorted(path for path in ROOT.glob("*.py"))
    scripts = [
        (path.name, str(len(reached(path.stem, between_files))), f"{help_seconds(path, arguments.samples):.2f}")
        for path in stages
    ]
    command_line.print_table(("script", "files reached", "seconds to --help"), scripts)
    print(*totals(), sep="\n")


if __name__ == "__main__":
    command_line.run(main)
