"""Logical axis names for parameters, read off the expressions that size them.

The names are MaxText's. What a size means is told by the words in it (`config.num_attention_heads * self.head_dim`),
after following attributes that the constructor copied from the configuration.
"""

import ast

# The first row whose words all occur in a size expression names its axis.
_WORDS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("vocab",), "vocab"),
    (("num_embeddings",), "vocab"),
    (("expert", "intermediate"), "mlp"),
    (("num_experts",), "exp"),
    (("num_local_experts",), "exp"),
    (("n_routed_experts",), "exp"),
    (("kv_heads",), "kv_heads"),
    (("key_value_heads",), "kv_heads"),
    (("num_attention_heads",), "q_heads"),
    (("n_head",), "q_heads"),
    (("num_heads",), "q_heads"),
    (("inner_dim",), "q_heads"),
    (("all_head_size",), "q_heads"),
    (("lora_rank",), "lora"),
    (("intermediate",), "mlp"),
    (("ffn",), "mlp"),
    (("d_ff",), "mlp"),
    (("n_inner",), "mlp"),
    (("inner",), "mlp"),
    (("max_position",), "position"),
    (("n_positions",), "position"),
    (("num_buckets",), "position"),
    (("head_dim",), "kv"),
    (("head_size",), "kv"),
    (("hidden",), "embed"),
    (("embed",), "embed"),
    (("n_embd",), "embed"),
    (("d_model",), "embed"),
    (("emb_dim",), "embed"),
    (("num_labels",), "vocab"),
    (("dim",), "embed"),
)


def axis_of(size: ast.expr, constructor: ast.FunctionDef) -> str | None:
    """The logical axis of a size expression in `constructor`, or None when its words say nothing."""
    text = _resolved(size, constructor, depth=3).lower()
    return next((axis for words, axis in _WORDS if all(word in text for word in words)), None)


def _resolved(size: ast.expr, constructor: ast.FunctionDef, depth: int) -> str:
    """Text of a size with the constructor's own attributes and locals replaced by what they were set to."""
    text = ast.unparse(size)
    # The words of the expression itself count first; its definition is looked up only when they say nothing.
    if depth and not any(all(w in text.lower() for w in words) for words, _ in _WORDS):
        for node in ast.walk(size):
            if isinstance(node, ast.Attribute | ast.Name):
                value = _assigned(ast.unparse(node), constructor)
                if value is not None:
                    text += " " + _resolved(value, constructor, depth - 1)
    return text


def _assigned(target: str, constructor: ast.FunctionDef) -> ast.expr | None:
    for node in ast.walk(constructor):
        if isinstance(node, ast.Assign) and any(ast.unparse(t) == target for t in node.targets):
            return node.value
    return None


def unique(axes: list[str | None]) -> tuple[str | None, ...]:
    """The axes with repeats removed: a mesh axis can shard only one dimension of an array."""
    kept: list[str | None] = []
    for axis in axes:
        kept.append(None if axis is not None and axis in kept else axis)
    return tuple(kept)


def module_axes(canonical: str, node: ast.Call, function: ast.FunctionDef) -> tuple[str | None, ...]:
    """Logical axes of the parameters that a torch layer is made with, by its sizes; empty where it has none to name."""
    named = {k.arg: k.value for k in node.keywords}
    if canonical in ("torch.nn.Embedding", "torch.nn.EmbeddingBag"):
        return unique([axis_of(a, function) for a in _pick(node.args, named, ("num_embeddings", "embedding_dim"))])
    if canonical.endswith("Conv1D"):
        size_out, size_in = _pick(node.args, named, ("nf", "nx"))
        return unique([axis_of(size_in, function), axis_of(size_out, function)])
    if canonical == "torch.nn.Bilinear":
        names = ("in1_features", "in2_features", "out_features")
        found = [axis_of(a, function) for a in _pick(node.args, named, names)]
        return unique(found[2:] + found[:2]) if len(found) == len(names) else ()
    if canonical == "torch.nn.Linear":
        return unique([axis_of(a, function) for a in _pick(node.args, named, ("in_features", "out_features"))])
    if "Norm" in canonical and canonical != "torch.nn.LocalResponseNorm":
        return ("norm",)
    return ()


def axes_tuple(axes: tuple[str | None, ...]) -> ast.expr:
    """Axis names as a tuple in the text."""
    return ast.Tuple([ast.Constant(a) for a in axes], ast.Load())


def _pick(positional: list[ast.expr], named: dict, names: tuple[str, ...]) -> list[ast.expr]:
    return [
        positional[i] if i < len(positional) else named[n]
        for i, n in enumerate(names)
        if i < len(positional) or n in named
    ]
