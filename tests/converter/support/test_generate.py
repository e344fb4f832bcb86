"""Generation with buckets, caches and one compiled loop gives what a plain loop gives."""

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tokenizers
from flax import nnx

from maxcode.converter.support import generate as generation
from maxcode.converter.support.generate import Generator, bucket, generate, read_settings
from tests.converter.support.generation_models import VOCABULARY, Decoder, EncoderDecoder

PROMPTS = [[3, 1, 4, 1, 5], [9, 2], [6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3]]


@pytest.fixture(autouse=True, scope="module")
def no_cache_on_disk():
    """Tests leave no compiled programs behind."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generation, "enable_compilation_cache", lambda: None)
        yield


@pytest.fixture(scope="module")
def decoder():
    return Decoder(rngs=nnx.Rngs(0))


@pytest.fixture(scope="module")
def generator(decoder):
    return Generator(decoder)


def plain_loop(model, prompt, count, penalty=1.0):
    """Greedy, without a cache: the whole sequence again for each token, with room for later ones on its right."""
    call = jax.jit(lambda tokens: model(tokens).logits[0])
    tokens = list(prompt)
    for _ in range(count):
        logits = np.array(call(jnp.asarray([tokens + [0] * (32 - len(tokens))]))[len(tokens) - 1])
        for token in set(tokens) if penalty != 1.0 else ():
            logits[token] = logits[token] / penalty if logits[token] > 0 else logits[token] * penalty
        tokens.append(int(logits.argmax()))
    return tokens[len(prompt) :]


@pytest.fixture(scope="module")
def expected(decoder):
    return [plain_loop(decoder, prompt, 12) for prompt in PROMPTS]


def test_greedy_equals_a_loop_without_cache(generator, expected):
    assert len({tuple(tokens) for tokens in expected}) == 3
    for prompt, want in zip(PROMPTS, expected):
        assert generator.generate([prompt], 12) == [want]


def test_a_padded_batch_equals_single_prompts(generator, expected):
    assert generator.generate(PROMPTS, 12) == expected


def test_more_tokens_than_positions_are_refused(generator, monkeypatch):
    monkeypatch.setattr(generator, "positions", 16)
    assert len(generator.generate([[1] * 10], 6)[0]) <= 6
    with pytest.raises(ValueError, match="10 tokens and 7 new ones need 17 positions.*at most 6 new"):
        generator.generate([[1] * 10], 7)


def test_streaming_yields_the_same_tokens(generator, expected):
    parts = list(generator.stream(PROMPTS, 12, chunk=5))
    assert [len(part[0]) for part in parts] == [1, 5, 5, 1]
    assert [[token for part in parts for token in part[row]] for row in range(3)] == expected


def test_rows_stop_at_their_own_end(generator, expected):
    eos = [expected[0][4], expected[1][2]]
    want = []
    for tokens in expected:
        ends = [i for i, token in enumerate(tokens) if token in eos]
        want.append(tokens[: ends[0] + 1] if ends else tokens)
    assert len({len(tokens) for tokens in want}) > 1
    assert generator.generate(PROMPTS, 12, eos_token_id=eos) == want
    parts = list(generator.stream(PROMPTS, 12, chunk=2, eos_token_id=eos))
    assert [[token for part in parts for token in part[row]] for row in range(3)] == want


def test_one_compilation_per_bucket():
    generator = Generator(Decoder(layers=1, rngs=nnx.Rngs(0)))
    for length in range(1, 101):
        generator.generate([[1] * length], 1 + length % 20)
    assert generator.traces == {"prefill": 3, "decode": 3}  # 32, 64, 128
    assert bucket(1) == bucket(32) == 32
    assert bucket(33) == 64


def test_numbers_of_sampling_compile_nothing():
    generator = Generator(Decoder(layers=1, rngs=nnx.Rngs(0)))
    for temperature, top_p in ((0.5, 0.9), (1.5, 0.3)):
        generator.generate([[1, 2]], 4, do_sample=True, temperature=temperature, top_p=top_p)
    assert generator.traces["decode"] == 1


def test_sampling_draws_and_repeats_with_its_key(generator, expected):
    options = {"do_sample": True, "temperature": 1.5, "top_k": 0}
    draws = [generator.generate(PROMPTS, 12, key=jax.random.key(seed), **options) for seed in (1, 1, 2)]
    assert draws[0] == draws[1]
    assert draws[0] != draws[2]
    assert generator.generate(PROMPTS, 12, **(options | {"temperature": 1e-4})) == expected


def test_repetition_penalty_counts_prompt_and_generated_tokens_but_no_padding(decoder, generator):
    want = [plain_loop(decoder, prompt, 8, penalty=1.7) for prompt in PROMPTS]
    assert generator.generate(PROMPTS, 8, repetition_penalty=1.7) == want


def test_encoder_decoder_encodes_once_and_equals_a_plain_loop():
    model = EncoderDecoder(rngs=nnx.Rngs(3))
    want = []
    for prompt in PROMPTS:
        encode = functools.partial(model, input_ids=jnp.asarray([prompt]))
        want.append(plain_loop(lambda tokens, encode=encode: encode(decoder_input_ids=tokens), [0], 6))
    generator = Generator(model, {"decoder_start_token_id": 0})
    assert generator.generate(PROMPTS, 6) == want
    assert generator.traces == {"prefill": 1, "decode": 1}
    with pytest.raises(ValueError, match="decoder_start_token_id"):
        Generator(model).generate(PROMPTS, 6)


def test_generate_reads_changed_weights(decoder, expected):
    model = Decoder(rngs=nnx.Rngs(0))
    assert generate(model, PROMPTS, 12) == expected
    traces = generation._GENERATORS[model].traces.copy()
    bias = np.zeros(VOCABULARY, np.float32)
    bias[7] = 1e6
    model.head.bias.set_value(jnp.asarray(bias))
    assert generate(model, PROMPTS, 12) == [[7] * 12] * 3
    assert generation._GENERATORS[model].traces == traces


def test_bad_requests_are_named(generator):
    with pytest.raises(ValueError, match=r"lengths \[2, 0\]"):
        generator.generate([[1, 2], []])
    with pytest.raises(ValueError, match="unknown generation settings"):
        generator.generate([[1]], 4, temprature=1.0)
    with pytest.raises(ValueError, match="max_new_tokens=0"):
        generator.generate([[1]], 0)


def test_settings_come_from_both_files(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": 2, "pad_token_id": 1, "hidden_size": 4}))
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [5, 6], "top_k": 7}))
    assert read_settings(tmp_path) == {"eos_token_id": [5, 6], "pad_token_id": 1, "top_k": 7}


def test_the_compilation_cache_is_on_and_can_be_placed(tmp_path):
    program = "from maxcode.converter.support.generate import enable_compilation_cache as f; import jax; f(); "
    program += "print(jax.config.jax_compilation_cache_dir)"
    for variable, folder in {"XDG_CACHE_HOME": "jax_compilation_cache", "JAX_COMPILATION_CACHE_DIR": ""}.items():
        environment = {k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"}
        environment[variable] = str(tmp_path / variable)
        command = [sys.executable, "-c", program]
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert run.stdout.strip() == str(tmp_path / variable / folder).rstrip("/")


PACKAGE = """
from flax import nnx
from tests.converter.support.generation_models import Decoder


class Model:
    @staticmethod
    def from_pretrained(folder, **overrides):
        return Decoder(layers=1, rngs=nnx.Rngs(0))
"""


def test_the_command_of_a_package(tmp_path):
    """The contract of docs/interfaces.md: options, the JSON record, and the same text in both forms."""
    package = tmp_path / "toy"
    package.mkdir()
    (package / "__init__.py").write_text(PACKAGE)
    for name in ("generate", "chat", "sampling", "programs", "settings", "cache", "cache_layers", "cache_slots"):
        source = Path(generation.__file__).with_name(f"{name}.py")
        (package / source.name).write_bytes(source.read_bytes())
    vocabulary = {f"w{i}": i for i in range(VOCABULARY)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="w0"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    root = str(Path(__file__).resolve().parents[3])
    environment = os.environ | {"PYTHONPATH": root, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    command = [
        sys.executable,
        "-m",
        "toy.generate",
        "--prompt=w3 w5",
        "--max-new-tokens=6",
        "--temperature=0",
        "--seed=1",
    ]

    def run(*options):
        return subprocess.run(
            [*command, *options], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        ).stdout.splitlines()[-1]

    record = json.loads(run("--json", "--chat=false"))
    assert record["tokens"] == plain_loop(Decoder(layers=1, rngs=nnx.Rngs(0)), [3, 5], 6)
    assert record["prompt_tokens"] == 2
    assert set(record["seconds"]) == {"load", "compile", "prefill", "decode"}
    assert run() == record["text"] == " ".join(f"w{token}" for token in record["tokens"])
