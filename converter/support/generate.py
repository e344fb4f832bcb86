"""Generation: one compiled prefill per prompt bucket, one compiled decode loop, and a command line.

    generator = Generator(model, settings=read_settings(folder))
    tokens = generator.generate([[1, 2, 3], [4, 5]], max_new_tokens=20)

    python -m <this package>.generate --prompt "What is the capital of France?"

Prompts are padded to a power of two: on the left, with the attention mask and positions that transformers' batched
generation uses, or on
the right for an encoder. The decode loop runs inside one compiled program, writes the cache in place and stops when all
rows have. Numbers
(temperature, how many tokens) are traced: changing them compiles nothing.
"""

import argparse
import collections
import functools
import inspect
import itertools
import json
import os
import sys
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import lax

from .cache import init_cache
from .chat import Text
from .programs import Program, identify, import_ahead
from .sampling import Sampling, choose

SMALLEST_BUCKET = 32
DEFAULT_NEW_TOKENS = 64


def enable_compilation_cache() -> None:
    """Keep compiled programs on disk for the next process, unless a cache is already configured.

    `JAX_COMPILATION_CACHE_DIR` names the folder (by default one below `XDG_CACHE_HOME` or ~/.cache);
    `JAX_ENABLE_COMPILATION_CACHE=false` switches it off.
    """
    if getattr(jax.config, "jax_compilation_cache_dir", None) is None and "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        jax.config.update("jax_compilation_cache_dir", str(Path(root) / "jax_compilation_cache"))
    # Small programs too: a start consists of many of them.
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def read_settings(folder: str | Path) -> dict[str, Any]:
    """Generation settings of a model folder: config.json's token ids, overridden by generation_config.json."""
    settings: dict[str, Any] = {}
    for name in ("config.json", "generation_config.json"):
        path = Path(folder) / name
        if path.is_file():
            values = json.loads(path.read_text(encoding="utf-8"))
            if name == "config.json":
                values = {k: v for k, v in values.items() if k.endswith("_token_id") and not k.startswith("forced_")}
            settings |= {k: v for k, v in values.items() if v is not None}
    return settings


def bucket(length: int) -> int:
    """The smallest power of two that holds `length`, at least 32."""
    return max(SMALLEST_BUCKET, 1 << (length - 1).bit_length())


class Generator:
    """A model, split once, with its compiled programs.

    The model is called as `model(input_ids=…, attention_mask=…, position_ids=…, cache=…)`, with those arguments that it
    takes, and returns a
    record with `logits` and `cache`; with `decoder_input_ids` if it has an encoder. `traces` counts how often each
    program was traced.
    """

    def __init__(self, model: nnx.Module, settings: Mapping[str, Any] | None = None, *, keep_programs: bool = False):
        """With `keep_programs` the next process neither traces nor compiles (programs.py); for unpatched packages."""
        enable_compilation_cache()
        self.settings = dict(settings or {})
        self.traces: collections.Counter[str] = collections.Counter()
        self._parameters = set(inspect.signature(model.__call__).parameters)
        self.is_encoder_decoder = "decoder_input_ids" in self._parameters
        positions = getattr(getattr(model, "config", None), "max_position_embeddings", None)
        self.positions = positions if isinstance(positions, int) and not self.is_encoder_decoder else None
        self._graph, params = nnx.split(model)
        self._params, self._tree = jax.tree.flatten(params)
        identity = identify(model, self._graph) if keep_programs else None
        self._prefill = Program(self._run_prefill, identity=identity, static=("plan", "new_tokens"))
        self._decode = Program(self._run_decode, identity=identity, static=("plan",), donate=(1,))

    def load(self, model: nnx.Module) -> None:
        """Take new weights from a model of the same structure."""
        graph, params = nnx.split(model)
        if graph != self._graph:
            raise ValueError("the model's structure differs from the one this generator was made for: make a new one")
        self._params = jax.tree.leaves(params)

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        max_new_tokens: int = DEFAULT_NEW_TOKENS,
        *,
        key: jax.Array | None = None,
        **settings: Any,
    ) -> list[list[int]]:
        """New tokens for each prompt, up to and including an end-of-sequence token.

        `settings` override those of the model: do_sample, temperature, top_k, top_p, min_p, repetition_penalty,
        eos_token_id,
        pad_token_id, decoder_start_token_id. Raises ValueError for an empty prompt, an unknown setting, or more tokens
        than the model has positions (`config.max_position_embeddings`).
        """
        rows: list[list[int]] = [[] for _ in prompts]
        for new in self.stream(prompts, max_new_tokens, chunk=max_new_tokens, key=key, **settings):
            for row, tokens in zip(rows, new, strict=True):
                row.extend(tokens)
        return rows

    def stream(
        self,
        prompts: Sequence[Sequence[int]],
        max_new_tokens: int = DEFAULT_NEW_TOKENS,
        *,
        chunk: int = 8,
        key: jax.Array | None = None,
        **settings: Any,
    ) -> Iterator[list[list[int]]]:
        """Like `generate`, step by step: yields the first token of each row, then at most `chunk` more at a time."""
        if max_new_tokens < 1 or chunk < 1:
            raise ValueError(f"max_new_tokens={max_new_tokens} and chunk={chunk} must be at least 1")
        self.check_room(max(map(len, prompts), default=0), max_new_tokens)
        sampling, start = self._resolve(settings)
        prompt, mask = pad_prompts(prompts, sampling.pad_token_id, side="right" if self.is_encoder_decoder else "left")
        numbers, plan = sampling.numbers(), sampling.plan
        key = jax.random.key(0) if key is None else key
        arguments = prompt, mask, numbers, key, np.int32(start)
        state = self._prefill(self._params, *arguments, plan=plan, new_tokens=bucket(max_new_tokens))
        yielded, finished = 0, np.zeros(len(prompt), bool)
        while True:
            tokens, step = np.asarray(state["tokens"]), int(state["step"])
            yield [_unfinished(row[yielded:step], done, plan) for row, done in zip(tokens, finished, strict=True)]
            finished |= np.isin(tokens[:, yielded:step], plan.eos_token_id).any(axis=1)
            yielded = step
            if yielded >= max_new_tokens or finished.all():
                return
            until = np.int32(min(yielded + chunk, max_new_tokens))
            state = self._decode(self._params, state, until, numbers, plan=plan)

    def check_room(self, longest: int, new_tokens: int) -> None:
        """Refuse what the model has no positions for: beyond them JAX would read its last position again and again."""
        if self.positions is None or longest + new_tokens <= self.positions:
            return
        room = max(self.positions - longest, 0)
        raise ValueError(
            f"a prompt of {longest} tokens and {new_tokens} new ones need {longest + new_tokens} positions; "
            f"the model has {self.positions}: shorten the prompt, or ask for at most {room} new tokens"
        )

    def _resolve(self, overrides: dict[str, Any]) -> tuple[Sampling, int]:
        """Settings of the model and of the call, and the token that starts a decoder."""
        known = {"do_sample", "temperature", "top_k", "top_p", "min_p", "repetition_penalty"}
        unknown = set(overrides) - known - {"eos_token_id", "pad_token_id", "decoder_start_token_id"}
        if unknown:
            raise ValueError(f"unknown generation settings {sorted(unknown)}; known are {sorted(known)} and token ids")
        settings = self.settings | overrides
        start = settings.get("decoder_start_token_id", settings.get("bos_token_id"))
        if self.is_encoder_decoder and start is None:
            raise ValueError("this model has a decoder of its own: give decoder_start_token_id=")
        return Sampling.from_settings(settings), start or 0

    def _call(self, model: nnx.Module, **inputs: Any) -> Any:
        """Call with those of `inputs` that the model takes."""
        return model(**{name: value for name, value in inputs.items() if name in self._parameters})

    def _run_prefill(self, params, prompt, mask, numbers, key, start, *, plan, new_tokens):
        """Read the prompts and choose the first token."""
        self.traces["prefill"] += 1
        model = nnx.merge(self._graph, jax.tree.unflatten(self._tree, params))
        batch, width = prompt.shape
        state, first = {"mask": mask, "encoded": None}, prompt
        if self.is_encoder_decoder:
            room = {"length": new_tokens + 1, "encoder_length": width}
            first = jnp.full((batch, 1), start, jnp.int32)
            inputs = {"input_ids": prompt, "decoder_input_ids": first}
            state["position"] = jnp.zeros(batch, jnp.int32)
        else:
            room = {"length": width + new_tokens}
            positions = jnp.maximum(jnp.cumsum(mask, axis=1) - 1, 0).astype(jnp.int32)
            inputs = {"input_ids": prompt, "position_ids": positions}
            state["position"] = mask.sum(axis=1).astype(jnp.int32)
            state["mask"] = jnp.pad(mask, ((0, 0), (0, new_tokens)), constant_values=1)
        output, cache = self._read_prompt(model, (mask, state["mask"]), room, inputs)
        if self.is_encoder_decoder:
            state["encoded"] = output.encoder_last_hidden_state
        logits = output.logits[:, -1]
        state |= {"cache": _cache_of(output, cache), "key": key, "step": jnp.int32(0)}
        state |= {"tokens": jnp.full((batch, new_tokens), plan.pad_token_id, jnp.int32), "done": jnp.zeros(batch, bool)}
        state["seen"] = None
        if plan.repetition_penalty != 1:
            tokens, real = (first, True) if self.is_encoder_decoder else (prompt, mask > 0)
            seen = jnp.zeros(logits.shape, bool)
            state["seen"] = seen.at[jnp.arange(batch)[:, None], tokens].max(jnp.broadcast_to(real, tokens.shape))
        return _append_token(state, logits, plan, numbers)

    def _read_prompt(self, model: nnx.Module, masks: tuple[jax.Array, jax.Array], room: dict, inputs: dict) -> Any:
        """The first call and its cache; models that make a bias of the mask (alibi) want one as long as the cache."""

        def read(mask: jax.Array) -> tuple[Any, Any]:
            cache = init_cache(model, len(mask), **room)
            call = {"attention_mask": mask, "cache": cache, "use_cache": True, "logits_to_keep": 1}
            return self._call(model, **call, **inputs), cache

        try:
            return read(masks[0])
        except (TypeError, ValueError):
            return read(masks[1])

    def _run_decode(self, params, state, until, numbers, *, plan):
        """Choose tokens until each row has `until` of them or has ended."""
        self.traces["decode"] += 1
        model = nnx.merge(self._graph, jax.tree.unflatten(self._tree, params))

        def step(state):
            last = lax.dynamic_slice_in_dim(state["tokens"], state["step"] - 1, 1, axis=1)
            if self.is_encoder_decoder:
                inputs = {"decoder_input_ids": last, "encoder_outputs": (state["encoded"],)}
            else:
                inputs = {"input_ids": last, "position_ids": state["position"][:, None]}
            cache = state["cache"]
            output = self._call(model, attention_mask=state["mask"], cache=cache, use_cache=True, **inputs)
            state = state | {"cache": _cache_of(output, cache), "position": state["position"] + 1}
            return _append_token(state, output.logits[:, -1], plan, numbers)

        return lax.while_loop(lambda state: (state["step"] < until) & ~state["done"].all(), step, state)


def _append_token(state: dict[str, Any], logits: jax.Array, plan: Sampling, numbers: Mapping[str, jax.Array]):
    """Choose a token per row and note it; rows that have ended get padding."""
    key, next_key = jax.random.split(state["key"]) if plan.do_sample else (state["key"], state["key"])
    token = choose(logits, plan, numbers, key, state["seen"])
    token = jnp.where(state["done"], plan.pad_token_id, token)
    tokens = lax.dynamic_update_slice_in_dim(state["tokens"], token[:, None], state["step"], axis=1)
    done = state["done"] | jnp.isin(token, jnp.asarray(plan.eos_token_id, jnp.int32))
    seen = state["seen"]
    seen = None if seen is None else seen.at[jnp.arange(token.shape[0]), token].set(True)
    return state | {"tokens": tokens, "done": done, "seen": seen, "key": next_key, "step": state["step"] + 1}


def _cache_of(output: Any, cache: Any) -> Any:
    """The updated cache: that of the record, or the one given, which the model wrote into."""
    returned = getattr(output, "cache", None)
    return cache if returned is None else returned


def _unfinished(tokens: np.ndarray, done: bool, plan: Sampling) -> list[int]:
    """What a row gained: nothing after its end."""
    if done:
        return []
    ends = np.flatnonzero(np.isin(tokens, plan.eos_token_id))
    return tokens[: ends[0] + 1 if ends.size else None].tolist()


def pad_prompts(prompts: Sequence[Sequence[int]], pad_token_id: int, *, side: str) -> tuple[np.ndarray, np.ndarray]:
    """Token ids and mask [batch, bucket], int32, padded on `side`. Raises ValueError for no prompt or an empty one."""
    if not len(prompts) or not all(len(prompt) for prompt in prompts):
        raise ValueError(f"expected prompts of at least one token, got lengths {[len(prompt) for prompt in prompts]}")
    width = bucket(max(len(prompt) for prompt in prompts))
    tokens = np.full((len(prompts), width), pad_token_id, np.int32)
    mask = np.zeros((len(prompts), width), np.int32)
    for row, prompt in enumerate(prompts):
        place = slice(width - len(prompt), None) if side == "left" else slice(len(prompt))
        tokens[row, place], mask[row, place] = prompt, 1
    return tokens, mask


_GENERATORS: weakref.WeakKeyDictionary[nnx.Module, Generator] = weakref.WeakKeyDictionary()


def generate(model: nnx.Module, prompts: Sequence[Sequence[int]], max_new_tokens: int = DEFAULT_NEW_TOKENS, **options):
    """`Generator.generate` with a generator kept as long as `model` lives; weights are read anew on each call."""
    if model not in _GENERATORS:
        _GENERATORS[model] = Generator(model)
    generator = _GENERATORS[model]
    generator.load(model)
    return generator.generate(prompts, max_new_tokens, **options)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=f"python -m {__package__}.generate", description="Continue a text.")
    parser.add_argument("--prompt", required=True, help="the text; the user's message if there is a chat template")
    parser.add_argument("--system", help="a system message")
    parser.add_argument("--chat", choices=("true", "false"), help="use the chat template (by default if there is one)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead, with timings")
    parser.add_argument("--folder", type=Path, default=Path(__file__).resolve().parents[1], help="of the weights")
    parser.add_argument("--max-new-tokens", type=int, default=DEFAULT_NEW_TOKENS)
    parser.add_argument("--temperature", type=float, help="0 for greedy; sampling if given")
    for name, kind in (("--top-k", int), ("--top-p", float), ("--min-p", float), ("--repetition-penalty", float)):
        parser.add_argument(name, type=kind)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dtype", help="compute dtype, e.g. bfloat16")
    return parser.parse_args(arguments)


def _encode(text: Text, options: argparse.Namespace) -> list[int]:
    """The prompt's token ids. Raises ValueError where there are none, or no template."""
    tokens = _encode_any(text, options)
    if not tokens:
        raise ValueError("the prompt has no tokens: give --prompt some text")
    return tokens


def _encode_any(text: Text, options: argparse.Namespace) -> list[int]:
    use_template = text.chat_template is not None if options.chat is None else options.chat == "true"
    if not use_template:
        return text.encode(options.prompt)
    system = [{"role": "system", "content": options.system}] if options.system else []
    return text.encode_chat([*system, {"role": "user", "content": options.prompt}])


def _refuse(error: Exception, options: argparse.Namespace) -> int:
    """Say what is wrong with the request; with `--json` as one record on stderr."""
    record = {"error": "input", "where": "--prompt", "found": str(error), "expected": "", "do": ""}
    sys.stderr.write((json.dumps(record) if options.json else f"generate: {error}") + "\n")
    return 2


def _print_stream(stream: Iterator[list[list[int]]], text: Text) -> None:
    """Write the text as it grows; a character that is not whole yet waits."""
    tokens, printed = [], ""
    for new in stream:
        tokens += new[0]
        whole = text.decode(tokens)
        if not whole.endswith("\ufffd"):
            sys.stdout.write(whole[len(printed) :])
            sys.stdout.flush()
            printed = whole
    sys.stdout.write(text.decode(tokens)[len(printed) :] + "\n")


def _print_json(start_stream: Callable[..., Iterator[list[list[int]]]], text: Text, prompt: list[int], load: float):
    """Generate twice: two tokens to compile (`compile` covers that run), then all of them for the other figures."""
    clock = time.perf_counter
    begin = clock()
    list(itertools.islice(start_stream(chunk=1), 2))
    compiled = clock()
    stream = start_stream(chunk=sys.maxsize)
    tokens = next(stream)[0]
    first = clock()
    tokens += [token for new in stream for token in new[0]]
    end = clock()
    seconds = {"load": load, "compile": compiled - begin, "prefill": first - compiled, "decode": end - first}
    record = {"text": text.decode(tokens), "tokens": tokens, "prompt_tokens": len(prompt), "seconds": seconds}
    sys.stdout.write(json.dumps(record) + "\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what the model of this package says to a prompt."""
    from . import Model

    options = _parse(arguments)
    begin = time.perf_counter()
    import_ahead()
    try:
        text = Text(options.folder)
        prompt = _encode(text, options)
    except (ValueError, FileNotFoundError, ImportError) as error:
        return _refuse(error, options)
    enable_compilation_cache()
    overrides = {} if options.dtype is None else {"dtype": options.dtype}
    model = Model.from_pretrained(options.folder, **overrides)
    generator = Generator(model, read_settings(options.folder), keep_programs=True)
    names = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
    settings = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    if options.temperature is not None:
        settings["do_sample"] = options.temperature > 0
    load = time.perf_counter() - begin
    try:
        generator.check_room(len(prompt), options.max_new_tokens)
    except ValueError as error:
        return _refuse(error, options)
    key = jax.random.key(options.seed)
    start_stream = functools.partial(generator.stream, [prompt], options.max_new_tokens, key=key, **settings)
    if options.json:
        _print_json(start_stream, text, prompt, load)
    else:
        _print_stream(start_stream(), text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
