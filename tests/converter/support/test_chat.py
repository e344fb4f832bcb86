"""Chat templates render as transformers renders them; text goes through tokenizer.json."""

import json

import pytest
import tokenizers
from tokenizers import models, pre_tokenizers, processors
from transformers.utils.chat_template_utils import render_jinja_template

from maxcode.converter.support.chat import Text, render_template

MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "hello <you> & 'me'"},
    {"role": "assistant", "content": "world"},
    {"role": "user", "content": "again"},
]
TEMPLATES = {
    "plain": (
        "{% for message in messages %}\n"
        "    {{- bos_token if loop.first else '' }}<|{{ message['role'] }}|>\n"
        "    {{ message.content | trim }}{{ eos_token }}\n"
        "{% endfor %}\n"
        "{% if add_generation_prompt %}<|assistant|>{% endif %}"
    ),
    "blocks": (
        "{%- set ns = namespace(count=0) -%}\n"
        "{%- for m in messages -%}{%- if m.role == 'system' -%}{%- continue -%}{%- endif -%}\n"
        "{%- if m.role == 'assistant' -%}{% generation %}{{ m.content }}{% endgeneration %}\n"
        "{%- else -%}{{ m | tojson(indent=2) }}{%- endif -%}{%- set ns.count = ns.count + 1 -%}{%- endfor -%}\n"
        "{{ ns.count }} {{ extra | default('none') }}"
    ),
}


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("prompt", [True, False])
def test_templates_render_as_in_transformers(name, prompt):
    options = {"add_generation_prompt": prompt, "bos_token": "<s>", "eos_token": "</s>"}
    want, _ = render_jinja_template(conversations=[MESSAGES], chat_template=TEMPLATES[name], **options)
    assert render_template(TEMPLATES[name], messages=MESSAGES, **options) == want[0]


def test_a_template_that_refuses_says_why():
    with pytest.raises(ValueError, match="refuses the messages: no system"):
        render_template("{{ raise_exception('no system') }}", messages=[])
    with pytest.raises(ValueError, match="cannot be rendered"):
        render_template("{% for %}", messages=[])
    with pytest.raises(ValueError, match="cannot be rendered"):  # the sandbox holds
        render_template("{{ ''.__class__.__mro__ }}", messages=[])


@pytest.fixture
def folder(tmp_path):
    words = ["<unk>", "<s>", "</s>", "hello", "world", "again"]
    tokenizer = tokenizers.Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    tokenizer.enable_truncation(2)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    config = {
        "bos_token": {"content": "<s>"},
        "eos_token": "</s>",
        "chat_template": "{{ bos_token }} {{ messages[0].content }}",
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    return tmp_path


def test_text_goes_in_and_out(folder):
    text = Text(folder)
    assert text.encode("hello world again") == [1, 3, 4, 5]
    assert text.encode("hello", add_special_tokens=False) == [3]
    assert text.decode([1, 3, 4, 2]) == "hello world"
    assert text.encode_chat([{"role": "user", "content": "world"}]) == [1, 4]


def test_where_a_template_stands(folder):
    config = json.loads((folder / "tokenizer_config.json").read_text())
    named = [{"name": "tool_use", "template": "tool"}, {"name": "default", "template": "named"}]
    (folder / "tokenizer_config.json").write_text(json.dumps(config | {"chat_template": named}))
    assert Text(folder).render([]) == "named"
    (folder / "chat_template.jinja").write_text("file {{ eos_token }}")
    assert Text(folder).render([]) == "file </s>"


def test_what_is_missing_is_named(folder):
    (folder / "tokenizer_config.json").unlink()
    with pytest.raises(ValueError, match="no chat template"):
        Text(folder).render([])
    (folder / "tokenizer.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"tokenizer\.json does not exist"):
        Text(folder)
