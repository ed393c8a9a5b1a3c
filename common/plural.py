"""Numbers with their word, as in "1 life" and "1,024 lives"."""


def plural(number: int, word: str, words: str | None = None) -> str:
    """Return a number and what it counts.

    Args:
        words: of several; by default with an s.
    """
    return f"{number:,} {word if number == 1 else words or f'{word}s'}"
