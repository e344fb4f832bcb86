"""The engine knows no source model: no name, string or comment is a model type or the prefix of its classes.

The names come from the installed framework's own registry. Exempt are the one data file of target formats, and the
few words below, which mean something else in English, torch or JAX.
"""

import functools
import io
import json
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("converter", "evaluator", "checkpoint_convert")
EXEMPT_FILES = {"converter/target_formats.json"}  # names of target formats, keyed by structure

# Model types that are also ordinary words here, with what they mean in the engine.
WORDS = {
    "ast": "Python's module of syntax trees",
    "bit": "of a number",
    "encoder_decoder": "kind of architecture, and the framework's flag for it",
    "encoderdecoder": "in the name of the cache of that kind",
    "gte": "ast.GtE, the operator >=",
    "clip": "jnp.clip",
    "beam": "beam search, in generation settings",
    "align": "of text, in style sheets",
    "aria": "accessibility attributes of HTML",
    "radio": "an HTML input",
}


@functools.cache
def model_names() -> frozenset[str]:
    """Model types in lower case (`a_b` also as `ab` and `a-b`), and the prefixes of their classes."""
    from transformers.models.auto import modeling_auto
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    types = set(CONFIG_MAPPING_NAMES)
    prefixes = {re.sub(r"(Config)$", "", name) for name in CONFIG_MAPPING_NAMES.values()}
    for table in (modeling_auto.MODEL_MAPPING_NAMES, modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES):
        for entry in table.values():
            for name in (entry,) if isinstance(entry, str) else entry:
                prefixes.add(re.sub(r"(Model|ForCausalLM|LMHeadModel|ForConditionalGeneration)$", "", name))
    names = {n.lower() for n in types | prefixes}
    names |= {n.replace("_", "").replace("-", "") for n in names} | {n.replace("-", "_") for n in names}
    return frozenset(n for n in names if len(n) > 1)


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """(line, text) of every identifier, string and comment of a file."""
    source = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield from enumerate(source.splitlines(), 1)
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.NAME, tokenize.STRING, tokenize.COMMENT):
            yield token.start[0], token.string


def mentions(text: str, names: frozenset[str]) -> set[str]:
    """Names in a text: as a word, as part of a snake_case or dotted name, or as the start of a CamelCase one."""
    found = set()
    for word in re.findall(r"[A-Za-z][A-Za-z0-9_\-]*", text):
        parts = [p for p in re.split(r"[_\-]+", word) if p]
        for length in (1, 2, 3):
            for start in range(len(parts) - length + 1):
                joined = "_".join(parts[start : start + length]).lower()
                found |= {joined} & names
        for part in parts:
            camel = re.findall(r"[A-Z]+(?![a-z])\d*|[A-Z][a-z]+\d*|[a-z]+\d*", part)
            for end in range(1, len(camel)):
                found |= {"".join(camel[:end]).lower()} & names
    return found


def files() -> list[Path]:
    """Every text file of the engine."""
    found = [p for f in FOLDERS for p in sorted((ROOT / f).rglob("*")) if p.suffix in (".py", ".json", ".j2", ".toml")]
    return [p for p in found if p.relative_to(ROOT).as_posix() not in EXEMPT_FILES and "__pycache__" not in p.parts]


@pytest.mark.parametrize("path", files(), ids=lambda p: p.relative_to(ROOT).as_posix())
def test_engine_file_names_no_source_model(path: Path):
    names = model_names() - set(WORDS)
    found = [(line, *sorted(hits), text[:80]) for line, text in texts(path) if (hits := mentions(text, names))]
    assert not found, f"{path.relative_to(ROOT)}: say it by what the source does, not by a model's name: {found[:8]}"


@pytest.mark.parametrize(
    "text",
    [
        "llama",
        "Qwen3Attention",
        '"qwen3_moe"',
        "# as in gpt2",
        "modeling_bert",
        "is_mixtral",
        "xlm-roberta",
        "DeepseekV3MoE",
    ],
)
def test_a_model_name_is_found(text: str):
    assert mentions(text, model_names() - set(WORDS))


@pytest.mark.parametrize("text", ["attention_mask", "RMSNorm", "config.layer_types", "torch.nn.functional", "cache"])
def test_ordinary_names_are_not(text: str):
    assert not mentions(text, model_names() - set(WORDS))


def test_every_exempt_word_is_a_model_name():
    assert not set(WORDS) - model_names(), "drop what the registry no longer has"


def test_the_exempt_data_file_is_data():
    for name in EXEMPT_FILES:
        json.loads((ROOT / name).read_text())
