"""The error that any package raises for mistakes that the user can fix."""


class UserError(Exception):
    """Bad input: the message is one line that says what is wrong, where, and what to do.

    Stage scripts print it and end with exit code 2; everything else is a bug and keeps its traceback.
    """
