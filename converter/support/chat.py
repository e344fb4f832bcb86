"""Text in and out: tokenizer.json and the chat template beside it (extras `text`: tokenizers, jinja2)."""

import datetime
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

_SPECIAL_TOKENS = ("bos_token", "eos_token", "pad_token", "unk_token", "sep_token", "cls_token", "mask_token")


class Text:
    """Tokenizer and chat template of a model folder.

    Raises FileNotFoundError without a tokenizer.json and ImportError without the extras.
    """

    def __init__(self, folder: str | Path):
        folder = Path(folder)
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise FileNotFoundError(
                f"{path} does not exist: text needs the tokenizer in that format (token ids work without)"
            )
        self._tokenizer = _require("tokenizers").Tokenizer.from_file(str(path))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._config = _read_json(folder / "tokenizer_config.json")
        self.special_tokens = _special_tokens(_read_json(folder / "special_tokens_map.json") | self._config)
        self.chat_template = _find_template(folder, self._config)

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids of `text`."""
        return self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids

    def decode(self, ids: Iterable[int], *, skip_special_tokens: bool = True) -> str:
        """The text of token ids."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=skip_special_tokens)

    def render(self, messages: list[Mapping[str, Any]], *, add_generation_prompt: bool = True, **variables: Any) -> str:
        """`messages` (dicts of `role` and `content`) as the text that the model was trained on.

        Raises ValueError for a folder without a chat template, or for messages that the template refuses.
        """
        if self.chat_template is None:
            raise ValueError("this model has no chat template: give plain text instead (--chat=false)")
        context = self.special_tokens | {"messages": messages, "add_generation_prompt": add_generation_prompt}
        return render_template(self.chat_template, **(context | variables))

    def encode_chat(self, messages: list[Mapping[str, Any]], **variables: Any) -> list[int]:
        """Token ids of rendered `messages`; the template writes the special tokens itself."""
        return self.encode(self.render(messages, **variables), add_special_tokens=False)


def render_template(template: str, **variables: Any) -> str:
    """A Hugging Face chat template, in a sandbox, with the names that such templates expect."""
    jinja2 = _require("jinja2")
    sandbox, extensions = _require("jinja2.sandbox"), _require("jinja2.ext")

    class Generation(extensions.Extension):
        """`{% generation %}…{% endgeneration %}` marks what the assistant wrote; the text inside is kept."""

        tags = frozenset({"generation"})

        def parse(self, parser):
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    def raise_exception(message: str) -> None:
        raise ValueError(f"the chat template refuses the messages: {message}")

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    environment = sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, extensions.loopcontrols]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    try:
        return environment.from_string(template).render(**variables)
    except jinja2.TemplateError as error:
        raise ValueError(f"the chat template cannot be rendered: {error}") from error


def _find_template(folder: Path, config: Mapping[str, Any]) -> str | None:
    """chat_template.jinja, else tokenizer_config.json's (of several named ones the default)."""
    path = folder / "chat_template.jinja"
    if path.is_file():
        return path.read_text(encoding="utf-8")
    template = config.get("chat_template")
    if isinstance(template, list):
        template = {entry["name"]: entry["template"] for entry in template}.get("default")
    return template


def _special_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    found = {name: config[name] for name in _SPECIAL_TOKENS if config.get(name) is not None}
    return {name: token["content"] if isinstance(token, Mapping) else token for name, token in found.items()}


def _read_json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _require(module: str) -> Any:
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f"text needs the package {module.partition('.')[0]!r}: install the extras [text]") from error
