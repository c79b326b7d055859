"""The one exception that stands for a user's mistake: the command line prints its message and exits with code 2."""


class UserError(Exception):
    """Something the user can put right. The message says what came, what is allowed and what to do.

    Anything else that escapes is a fault of NormScope and keeps its traceback.
    """
