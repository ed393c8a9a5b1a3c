"""Print the tables of docs/features.md: python -m analysis.features"""

from analysis.features import as_markdown
from common import command_line

if __name__ == "__main__":
    command_line.run(lambda: print(as_markdown()))
