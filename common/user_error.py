"""The error that any package raises for mistakes that the user can fix."""

import errno
import os

LONGEST_MESSAGE = 500
"""Characters that a message has at most, as shown."""

TOO_LITTLE_MEMORY = "there is too little memory: end other programs, or ask for less of it"
_OF_TORCH = "can't allocate memory"
"""What torch says where Python raises a MemoryError."""
_OF_PATHS = {errno.ENAMETOOLONG, errno.EACCES, errno.EPERM, errno.EROFS, errno.ELOOP}
_GAP = " [...] "
_END_SHOWN = 150


class UserError(Exception):
    """Bad input: the message is one line that says what is wrong, where, and what to do.

    Stage scripts print it and end with exit code 2; everything else is a bug and keeps its traceback. As text it is
    always one printable line of `LONGEST_MESSAGE` characters or fewer, whatever the file it quotes contains.
    """

    def __str__(self) -> str:
        return one_line(super().__str__())


def fault_of(error: UserError | OSError | MemoryError | RuntimeError) -> str | None:
    """Return a line about what the user can mend: bad input, little memory or a path that cannot be used; else None.

    A name that is too long, or a folder that may not be searched, fails wherever a path is first looked at.
    """
    if isinstance(error, RuntimeError):
        return TOO_LITTLE_MEMORY if _OF_TORCH in str(error) else None
    if not isinstance(error, OSError):
        return TOO_LITTLE_MEMORY if isinstance(error, MemoryError) else str(error)
    if error.errno not in _OF_PATHS or error.filename is None:
        return None
    name = error.filename if isinstance(error.filename, str) else os.fsdecode(error.filename)
    return one_line(f"{name} cannot be used: {error.strerror}")


def one_line(text: str) -> str:
    """Return text as one printable line of `LONGEST_MESSAGE` characters or fewer; of a longer one the middle goes."""
    text = printable(text)
    if len(text) <= LONGEST_MESSAGE:
        return text
    return text[: LONGEST_MESSAGE - len(_GAP) - _END_SHOWN] + _GAP + text[-_END_SHOWN:]


def printable(text: str) -> str:
    r"""Return text with line ends, escape codes and all else that a terminal would obey written out, as `\x1b`."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )
