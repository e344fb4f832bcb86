"""Names of optional packages' kernels: what they are where the packages are missing."""

import textwrap

import pytest

from maxcode.converter.optional import absent_names
from maxcode.converter.source import SourceFile

CASES = {
    "if, else None": (
        """
        if is_kernels_available():
            from kernels import fast, faster
        else:
            fast, faster = None, None
        both = all((fast, faster))
        other = None
        """,
        {"fast": None, "faster": None, "both": False},
    ),
    "try, except None": (
        """
        try:
            from kernels import fast as quick
        except ImportError:
            quick = None
        """,
        {"quick": None},
    ),
    "loaded in a constructor": (
        """
        class Net:
            def __init__(self):
                global fast, is_fast
                kernels = lazy_load_kernel("kernels")
                fast = getattr(kernels, "fast", None)
                is_fast = all((fast,))
        """,
        {"fast": None, "is_fast": False},
    ),
    "an import with a real stand-in": (
        """
        try:
            from kernels import fast
        except ImportError:
            def fast(x):
                return x
        """,
        {},
    ),
    "partly known": (
        """
        try:
            from kernels import fast
        except ImportError:
            fast = None
        ready = all((fast, other()))
        """,
        {"fast": None},
    ),
}


@pytest.mark.parametrize(("code", "expected"), CASES.values(), ids=CASES)
def test_absent_names(code: str, expected: dict):
    assert absent_names(SourceFile("net", "net.py", textwrap.dedent(code))) == expected
