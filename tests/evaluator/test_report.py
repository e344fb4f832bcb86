"""The report page: complete, self-contained, safe, and truthful about what it was given."""

import html.parser
import math
import random

import pytest

from maxcode.evaluator import report, report_charts

PLACES = (
    "input_layernorm",
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.o_proj",
    "self_attn",
    "mlp.down_proj",
    "mlp",
    "",
)


def realistic_record(layers: int = 24) -> dict:
    """A record of the size and shape that a conversion of a small decoder gives."""
    draw = random.Random(0)

    def modules(scale: float) -> list[dict]:
        names = ["embed", *(f"model.layers.{i}.{p}".rstrip(".") for i in range(layers) for p in PLACES), "norm", "head"]
        return [
            {
                "fqn": name,
                "class": "Linear",
                "file": "model.py",
                "line": 40 + n % 90,
                "error": scale * 10 ** draw.uniform(-1, 1),
            }
            for n, name in enumerate(names)
        ]

    errors = [10 ** draw.gauss(-6.5, 0.7) for _ in range(5000)]
    lines = [[n, f"    line {n} of the <source> & more"] for n in range(10, 17)]
    return {
        "status": "failed",
        "target": "./model",
        "output": "/data/model",
        "checks": [
            {"name": "standalone", "status": "pass", "value": None, "limit": None, "scale": "real weights",
            "detail": "no torch"},
            {"name": "exact", "status": "pass", "value": 4.2e-15, "limit": 1e-10, "scale": "real weights",
            "detail": "2 cases, worst a"},
            {"name": "float32", "status": "fail", "value": 3.1e-4, "limit": 1.2e-5, "scale": "real weights",
            "detail": "logits, seed 2"},
            {"name": "performance", "status": "pass", "value": 0.93, "limit": 1.5, "scale": "real weights",
            "detail": "forward 0.93x"},
            {"name": "padding", "status": "n/a", "value": None, "limit": None, "scale": "", "detail": "takes no mask"},
            {"name": "tpu", "status": "not_run", "value": None, "limit": None, "scale": "", "detail": "needs --tpu"},
        ],
        "gaps": [
            {"code": "CV101", "file": "model.py", "line": 12, "torch_name": "torch.cummax", "reason": "no rule",
            "hint": "add one",
             "source_lines": lines, "jax_file": "modeling.py", "jax_line": 30, "jax_lines": [[30, 'gap("CV101", …)']]},
        ],
        "traced": [],
        "assumptions": [{"file": "model.py", "line": 14, "text": "attention is eager", "source_lines": lines}],
        "timings": {"resolve": 2.5, "facts": 4.1, "gate": 75.25},
        "versions": {"maxcode": "0.1.0", "jax": "0.10.2"},
        "weights": {
            "rows": [
                {"source": f"layers.{i}.q.weight", "target": f"layers.{i}.q.kernel", "layout": "o i -> i o",
                "shape": [64, 64], "dtype": "BF16"}
                for i in range(layers)
            ],
            "tied": [["head.weight", "embed.weight"]],
            "waived": [{"source": "rope.inv_freq", "reason": "recomputed"}],
            "source_tensors": layers + 1, "source_bytes": 123_456_789, "written_bytes": 120_000_000, "changed": [],
            "unused": [],
        },
        "evidence": {
            "layers": {
                "float64": {"limit": 1e-10, "modules": modules(1e-15)},
                "float32": {"limit": 1.2e-5, "modules": modules(2e-6)},
            },
            "logits": {"float32": report_charts.log_bins(errors) | {"limit": 1e-5}},
            "divergence": {"fqn": "model.layers.3.mlp", "class": "MLP", "file": "model.py", "line": 77,
            "error": 3.1e-4},
            "faults": {"caught": 18, "seeded": 18, "missed": []},
        },
    }  # fmt: skip


class PageReader(html.parser.HTMLParser):
    """Collects tags, references and texts, and checks that tags nest."""

    VOID = frozenset({"meta", "br", "input", "link", "img"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.references: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.references += [value for name, value in attrs if name in ("src", "href", "action", "data")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


@pytest.fixture(scope="module")
def page() -> str:
    return report.render(realistic_record())


def test_page_is_well_formed_and_asks_for_nothing(page):
    reader = PageReader(page)
    assert reader.open == []
    assert reader.references == []
    assert "url(" not in page
    assert "http://" not in page
    assert "https://" not in page


def test_page_shows_every_part(page):
    text = PageReader(page).text
    for part in ("4.2e-15", "✗", "Where the two first differ", "layers.*.self_attn.q_proj", "CV101", "torch.cummax",
                 "18/18", "recomputed", "embed.weight", "1:15 min", "o i → i o", "123 MB"):  # fmt: skip
        assert part in text, part


def test_one_cell_per_module_and_one_pane_per_dtype(page):
    assert page.count('class="pane"') == 2
    modules = len(realistic_record()["evidence"]["layers"]["float64"]["modules"])
    assert page.count(' rx="3" ') == 2 * modules


def test_source_text_is_escaped():
    record = realistic_record()
    record["gaps"][0]["reason"] = "<script>alert(1)</script>"
    record["target"] = "</title><img src=x>"
    page = report.render(record)
    assert "<script>alert" not in page
    assert "<img" not in page


@pytest.mark.parametrize("status", list(report.STATUS_TEXT))
def test_bare_record_renders(status):
    bare = {"status": status, "target": "", "output": "", "checks": [], "gaps": [], "traced": [], "assumptions": [],
            "timings": {}, "versions": {}}  # fmt: skip
    assert PageReader(report.render(bare)).open == []


def test_colour_tells_over_from_under():
    assert report_charts.colour(1.01e-5, 1e-5) == "rgb(214, 63, 63)"
    assert report_charts.colour(1e-5, 1e-5) != report_charts.colour(1e-11, 1e-5)
    assert report_charts.colour(math.nan, 1e-5) == report_charts.colour(None, 1e-5) == "rgb(140,140,140)"
    assert report_charts.colour(0.0, 1e-5) == report_charts.colour(1e-30, 1e-5)


def test_layers_with_the_same_place_share_a_row():
    data = {"modules": [{"fqn": "a.0.x", "error": 1e-9}, {"fqn": "a.11.x", "error": 1e-9}, {"fqn": "b", "error": 1.0}]}
    chart = report_charts.heat_map("float32", data)
    assert [row["text"] for row in chart["rows"]] == ["a.*.x", "b"]
    assert chart["cells"][0]["y"] == chart["cells"][1]["y"]
    assert chart["cells"][1]["x"] > chart["cells"][0]["x"]
    assert chart["worst"]["fqn"] == "b"


def test_headroom_words():
    assert report_charts.headroom(0.75, 1.5)["text"] == "50 % of it"
    assert report_charts.headroom(3.0, 1.5) == {"percent": 100.0, "text": "2× over", "over": True}
    assert report_charts.headroom(1e-15, 1e-10)["text"] == "1e5× below"
    assert report_charts.headroom(None, 1.0) is None
    assert report_charts.headroom("inf", 1.0) is None


def test_log_bins_keep_every_error():
    bins = report_charts.log_bins([0.0, 1e-30, 3e-7, 2.0, 1e9])
    assert sum(bins["counts"]) == 5
    assert bins["counts"][-1] == 2
    with pytest.raises(ValueError, match="expected one more edge"):
        report_charts.histogram("x", {"edges": [0, 1], "counts": [1, 2]})


def test_ledger_accepts_counts_pairs_and_merged_sources():
    merged = {"sources": [{"source": "e.0.w"}, {"source": "e.1.w"}], "target": "experts", "layout": ""}
    found = report.ledger({"rows": [merged], "tied": [("a", "b")], "unused": ["lost"]})
    assert found["rows"][0]["source"] == "e.0.w … e.1.w (2)"
    assert found["rows"][0]["layout"] == "as is"
    assert found["tied"] == [("a", "b")]
    assert found["problems"] == [("unused", "lost")]
    assert report.ledger({"rows": 7})["count"] == 7
    assert report.ledger(None) is None
