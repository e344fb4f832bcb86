"""Running training programs: what is run, what is cut from imports, and what a run says of the model."""

import ast
import textwrap

import pytest

from maxcode.evaluator.oracle.errors import OracleError
from maxcode.evaluator.oracle.program import Program
from maxcode.evaluator.oracle.script import cut, has_program
from maxcode.evaluator.oracle.training_loop import CAPTURE, Capture


class Patient:
    def seen_enough(self):
        return False


def program(tmp_path, source, entry=None):
    path = tmp_path / "own_program.py"
    path.write_text(textwrap.dedent(source))
    return Program({"file": str(path), "entry": entry})


def test_a_guarded_script_is_run(tmp_path):
    made = program(tmp_path, "seen = []\nif __name__ == '__main__':\n    seen.append(1)\n")
    assert made.run(Patient(), seconds=10)
    assert made.module.seen == [1]


def test_a_function_that_needs_nothing_is_called(tmp_path):
    made = program(tmp_path, "seen = []\ndef fit(n=3):\n    seen.append(n)\n", entry="fit")
    made.run(Patient(), seconds=10)
    assert made.module.seen == [3]


def test_a_function_is_given_the_files_own_arguments(tmp_path):
    source = (
        "seen = []\ndef fit(n, m):\n    seen.append((n, m))\ndef get_train_inputs():\n    return {'n': 1, 'm': 2}\n"
    )
    made = program(tmp_path, source, entry="fit")
    made.run(Patient(), seconds=10)
    assert made.module.seen == [(1, 2)]


def test_a_function_without_its_arguments_is_refused(tmp_path):
    with pytest.raises(OracleError, match="needs model, loader"):
        program(tmp_path, "def fit(model, loader):\n    pass\n", entry="fit").run(Patient(), seconds=10)


def test_an_error_names_the_line(tmp_path):
    with pytest.raises(OracleError, match=r"own_program.py:2: found ZeroDivisionError"):
        program(tmp_path, "def main():\n    return 1 / 0\nmain()\n").run(Patient(), seconds=10)


def test_files_beside_the_program_are_there_and_nothing_is_written(tmp_path):
    (tmp_path / "data.txt").write_text("hello")
    source = "text = open('data.txt').read()\nopen('new.txt', 'w').write(text)\nprint(text)\n"
    made = program(tmp_path, source)
    made.run(Patient(), seconds=10)
    assert made.module.text == "hello"
    assert not (tmp_path / "new.txt").exists()


SCRIPT = ast.parse("""
import math
size = 3
class Net: pass
model = Net()
def late(): pass
for i in range(3):
    print(i)
if __name__ == "__main__":
    late()
""")


def test_what_defines_things_is_told_from_the_program():
    assert has_program(SCRIPT)
    assert not has_program(ast.parse("import math\nx = 1\ndef f(): pass\n"))
    kept = ast.unparse(cut(ast.parse(ast.unparse(SCRIPT)), 4))
    assert "size = 3" in kept
    assert "def late" in kept
    assert "Net()" not in kept
    assert "__main__" not in kept


def test_values_are_read_where_a_step_reads_them_first():
    source = "for x, y in batches:\n    with amp():\n        h = x * 2\n        loss = h - y\n    step(loss)\n"
    steps = [{"inputs": [{"name": "x", "key": "x", "line": 3}, {"name": "y", "key": "y", "line": 4}]}]
    text = ast.unparse(ast.fix_missing_locations(Capture(steps).tree("f.py", ast.parse(source))))
    lines = [line.strip() for line in text.splitlines()]
    assert lines[2:6] == [f"{CAPTURE}(0, 'x', x)", "h = x * 2", f"{CAPTURE}(0, 'y', y)", "loss = h - y"]
