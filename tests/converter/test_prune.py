"""Support modules are copied with what is reached, and nothing else."""

import ast

from maxcode.converter.library import support_library
from maxcode.converter.prune import home, prune

LIBRARY = {
    "base": '''"""Base."""
import math
import os


def low(x):
    return math.sqrt(x)


def other(x):
    return os.name
''',
    "mid": '''"""Mid."""
from .base import low, other


# About the limit.
LIMIT = 3


def high(x):
    return low(x) + LIMIT


def far(x):
    return other(x)
''',
    "table": '''"""Table."""
TABLE = {}


def register(name):
    TABLE[name] = 1


register("a")


def look(x):
    return TABLE[x]


def unused():
    pass
''',
    "again": '"""Again."""\nfrom .base import low\n',
}


def _names(text: str) -> set[str]:
    return {n.name for n in ast.parse(text).body if isinstance(n, ast.FunctionDef | ast.ClassDef)}


def test_only_reached_definitions_are_kept():
    found = prune(LIBRARY, {"modeling.py": "from .mid import high"}, {})
    assert set(found) == {"mid.py", "base.py"}
    assert _names(found["mid.py"]) == {"high"}
    assert _names(found["base.py"]) == {"low"}
    assert "import os" not in found["base.py"]
    assert "# About the limit.\nLIMIT = 3" in found["mid.py"]


def test_module_reads_count_by_attribute():
    found = prune(LIBRARY, {"modeling.py": "from . import mid\nmid.far(1)"}, {})
    assert _names(found["mid.py"]) == {"far"}
    assert _names(found["base.py"]) == {"other"}


def test_effects_at_import_stay():
    found = prune(LIBRARY, {"modeling.py": "from .table import look"}, {})
    assert 'register("a")' in found["table.py"]
    assert _names(found["table.py"]) == {"register", "look"}


def test_reexports_are_followed_and_marked():
    found = prune(LIBRARY, {"modeling.py": "from .again import low"}, {})
    assert '__all__ = ["low"]' in found["again.py"]
    assert _names(found["base.py"]) == {"low"}
    assert home(LIBRARY, "again", "low") == "base"


def test_roots_are_whole_modules():
    assert _names(prune(LIBRARY, {}, {"base": None})["base.py"]) == {"low", "other"}


def test_pruned_support_modules_import_only_what_is_there():
    library = support_library()
    found = prune(library, {"modeling.py": "from .masks import create_causal_mask\nfrom .cache import Cache"}, {})
    for name, text in found.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module:
                target = ast.parse(found[f"{node.module}.py"])
                there = {n.id for n in ast.walk(target) if isinstance(n, ast.Name)} | _names(found[f"{node.module}.py"])
                there |= {
                    a.asname or a.name for n in ast.walk(target) if isinstance(n, ast.ImportFrom) for a in n.names
                }
                assert {a.name for a in node.names} <= there, (name, node.module)
