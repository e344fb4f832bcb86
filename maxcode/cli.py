"""The `maxcode` command. Small on purpose: an interrupt during the imports below still ends with the right status."""

import sys


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns its exit status (design: 0, 1, 2, 3, 4 or 130)."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        from maxcode import session

        with session.signals():
            return session.run(arguments)
    except KeyboardInterrupt:
        sys.stderr.write("maxcode: interrupted\n")
        return 130  # errors.Exit.INTERRUPTED, which may not be imported yet


if __name__ == "__main__":
    sys.exit(main())
