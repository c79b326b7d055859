"""`normscope` and `python -m normscope`: the command line, which a signal ends in one line from its
first moment on.
"""

from .signals import ending_in_one_line


def main() -> None:
    """Run the command line. Exit codes: those of `cli.main.main`; 128 and the signal's number where
    one ends it.
    """
    with ending_in_one_line():
        # Only now: what it imports takes longer than everything before it.
        from .cli.main import main as run

        run()


if __name__ == "__main__":
    main()
