"""Print the tables of docs/features.md: python -m analysis.features"""

from analysis.features import as_markdown

if __name__ == "__main__":
    print(as_markdown())
