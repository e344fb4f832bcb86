"""Source and result side by side: the right lines, and nothing where there are none."""

from maxcode.excerpts import enclosing, excerpt, with_lines

SOURCE = """import torch


class Net(torch.nn.Module):
    def forward(self, x):
        # first
        y = x.relu()
        return torch.special.airy_ai(y)
"""
RESULT = '''class Net(Module):
    """Net."""

    def __call__(self, x):
        y = jax.nn.relu(x)
        return gap("CV101", "net.py:8: torch.special.airy_ai: no rule")
'''


def place(tmp_path, line, **fields):
    path = tmp_path / "net.py"
    path.write_text(SOURCE)
    return with_lines([{"file": str(path), "line": line, **fields}], {"modeling.py": RESULT}, "pkg")[0]


def test_a_gap_leads_to_the_call_that_raises(tmp_path):
    found = place(tmp_path, 8, torch_name="torch.special.airy_ai")
    assert found["source_lines"][-1] == [8, "        return torch.special.airy_ai(y)"]
    assert (found["jax_file"], found["jax_line"]) == ("pkg/modeling.py", 6)
    assert [number for number, _ in found["jax_lines"]] == [4, 5, 6]


def test_an_assumption_leads_to_the_nearest_line_of_the_same_method(tmp_path):
    found = place(tmp_path, 7, text="x is floating")
    assert found["jax_line"] == 5
    assert found["text"] == "x is floating"


def test_what_has_no_place_stays_as_it_is(tmp_path):
    assert with_lines([{"text": "t"}, "plain"], {"modeling.py": RESULT}, "pkg") == [{"text": "t"}, "plain"]
    assert place(tmp_path, 99) == {"file": str(tmp_path / "net.py"), "line": 99}
    assert "jax_line" not in with_lines([{"file": "missing.py", "line": 1}], {}, "pkg")[0]


def test_enclosing_and_excerpt():
    assert enclosing(SOURCE, 7) == ("Net", "__call__")
    assert enclosing(SOURCE, 1) == ()
    assert excerpt("a\nb\nc\n", 1) == [[1, "a"], [2, "b"], [3, "c"]]
