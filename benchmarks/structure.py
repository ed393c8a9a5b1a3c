"""Structure of the code: files and lines by room, import cycles, and how many files each script reaches.

python -m benchmarks.structure
"""

import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from common import command_line
from tests.house import ROOT, Arrows, circle, file_arrows, modules, room_arrows


@dataclass(frozen=True)
class Arguments:
    """benchmarks/structure.py takes no arguments."""


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


def main() -> None:
    """Print the tables."""
    command_line.parse(Arguments, __doc__)
    command_line.print_table(("room", "files", "lines", "longest file (lines)"), room_rows())
    between_files = file_arrows()
    for name, arrows in (("files", between_files), ("sub-rooms and loose files", room_arrows())):
        cycle = circle(arrows)
        count = sum(map(len, arrows.values()))
        print(f"{name}: {len(arrows)}, imports between them: {count}, circle: {' -> '.join(cycle) or 'none'}")
    scripts = [(path.name, str(len(reached(path.stem, between_files)))) for path in sorted(ROOT.glob("*.py"))]
    command_line.print_table(("script", "files reached"), scripts)
    print(*totals(), sep="\n")


if __name__ == "__main__":
    command_line.run(main)
