"""`trace`: the forward of submodules as straight lines of torch, read off torch.export's graph.

For parts that the converter has no rule for (`--on-gap trace`). A graph holds one path through the code, so what the
run did not see is refused by checks at the top of the text: other flags, arguments that were absent, sizes that the
graph fixes. A text counts only when it gives what the module gives, on the recorded inputs, in float64.
"""

import inspect
import re
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.export.graph_signature import InputKind
from torch.utils import _pytree as pytree

from maxcode.evaluator import tolerance
from maxcode.evaluator.oracle.build import call
from maxcode.evaluator.oracle.flatten import bind, dtype_name
from maxcode.evaluator.oracle.graph_text import GraphText, Refusal
from maxcode.evaluator.oracle.lift import computing_in
from maxcode.evaluator.oracle.session import Session

_DTYPE = re.compile(r"torch\.(float32|bfloat16)\b")
Traced = dict[str, Any]


def trace_classes(session: Session, wanted: list[str], known: set[str]) -> dict[str, Traced]:
    """For each qualified class name: {"body": statements, "variables": {name: {"kinds", "dtypes", "ndims"}}, "checks"}.

    Where no text can be had: {"refused": reason}. `known` holds the names of torch functions that may be called.
    """
    try:
        calls = {dtype: _captured(session, dtype, set(wanted)) for dtype in ("float32", "bfloat16")}
    except Exception as error:  # the source's own: not every function has every dtype
        return {name: {"refused": f"the source does not run ({_in_short(error)})"} for name in wanted}
    found: dict[str, Traced] = {}
    for name in wanted:
        try:
            found[name] = _class_text(session, [calls[d].get(name, []) for d in ("float32", "bfloat16")], known)
        except Refusal as refusal:
            found[name] = {"refused": str(refusal)}
        except Exception as error:  # whatever export raises: it has many kinds of its own
            found[name] = {"refused": f"torch.export: {_in_short(error)}"}
    return found


def _in_short(error: Exception) -> str:
    first = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first[:300]}"


Call = tuple[str, nn.Module, dict[str, Any]]  # name of the instance, module, arguments by name


def _captured(session: Session, dtype: str, wanted: set[str]) -> dict[str, list[Call]]:
    """The first call of every instance of the wanted classes in one run of the model."""
    model, found, handles = session.model(dtype), {}, []

    def keep(qualified: str, fqn: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
            calls = found.setdefault(qualified, [])
            if all(name != fqn for name, *_ in calls):
                given = pytree.tree_map_only(Tensor, lambda t: t.detach().clone(), bind(module.forward, args, kwargs))
                calls.append((fqn, module, given))

        return hook

    for fqn, module in model.named_modules():
        qualified = f"{type(module).__module__}.{type(module).__qualname__}"
        if qualified in wanted:
            handles.append(module.register_forward_pre_hook(keep(qualified, fqn), with_kwargs=True))
    try:
        with torch.no_grad():
            call(model, session.inputs(dtype), dtype, seed=session.seed)
    finally:
        for handle in handles:
            handle.remove()
    return found


def _class_text(session: Session, by_dtype: list[list[Call]], known: set[str]) -> Traced:
    wide, narrow = by_dtype
    if not wide:
        raise Refusal("no instance ran")
    texts = [_instance_text(module, given, known, "float32") for _, module, given in wide]
    if any(text["body"] != texts[0]["body"] for text in texts):
        raise Refusal(f"its {len(texts)} instances have different graphs")
    (_, module, given), *_ = narrow
    text = _with_dtypes(texts[0], _instance_text(module, given, known, "bfloat16"))
    name, module, given = wide[0]
    _require_equal(session.model("float64").get_submodule(name), given, text)
    return text


def _instance_text(module: nn.Module, given: dict[str, Any], known: set[str], dtype: str) -> Traced:
    """The text of one instance in one dtype."""
    sizes = pytree.tree_map(lambda v: _dynamic(v) if isinstance(v, Tensor) else None, given)
    with torch.no_grad(), computing_in(dtype):
        program = torch.export.export(module, (), given, dynamic_shapes=sizes, strict=False)
        program = _decomposed(program, known)
    if odd := [name for name in given if not name.isidentifier()]:
        raise Refusal(f"it takes {odd[0]} by position")
    names = {}
    paths, _ = pytree.tree_flatten_with_path(given)
    users = iter(paths)
    for spec in program.graph_signature.input_specs:
        if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER):
            names[spec.arg.name] = f"self.{spec.target}"
        elif spec.kind is InputKind.USER_INPUT:
            path, _ = next(users)
            names[spec.arg.name] = path[0].key + "".join(map(str, path[1:]))
        else:
            raise Refusal(f"the graph holds a constant ({spec.target})")
    whole = given | _defaults(module, given)
    return GraphText(program.graph_module.graph, names, known).text(whole, program.call_spec.out_spec)


def _defaults(module: nn.Module, given: dict[str, Any]) -> dict[str, Any]:
    """Arguments that were not given, by name."""
    parameters = inspect.signature(module.forward).parameters.items()
    return {n: p.default for n, p in parameters if n not in given and p.default is not p.empty}


def _dynamic(value: Tensor) -> dict[int, Any]:
    return dict.fromkeys(range(value.dim()), torch.export.Dim.AUTO)


def _decomposed(program: Any, known: set[str]) -> Any:
    """The program with operations that have no torch function of a known name taken apart, where torch can."""
    table = torch.export.default_decompositions()
    unknown = {
        node.target: table[node.target]
        for node in program.graph.nodes
        if node.op == "call_function" and node.target in table and not GraphText.is_known(node.target, known)
    }
    return program.run_decompositions(unknown) if unknown else program


def _with_dtypes(wide: Traced, narrow: Traced) -> Traced:
    """Literal dtypes that are the model's own in both graphs become the dtype of a floating input."""
    if len(wide["body"]) != len(narrow["body"]):
        raise Refusal("its graphs in float32 and bfloat16 differ")
    anchor = next((n for n, about in wide["variables"].items() if about["dtypes"] == ["float32"]), None)
    body = []
    for one, other in zip(wide["body"], narrow["body"], strict=True):
        if one != other:
            if anchor is None or _DTYPE.sub("", one) != _DTYPE.sub("", other):
                raise Refusal("its graphs in float32 and bfloat16 differ")
            pairs = zip(_DTYPE.findall(one), _DTYPE.findall(other), strict=True)
            own = iter([a != b for a, b in pairs])
            one = _DTYPE.sub(lambda m, own=own: f"{anchor}.dtype" if next(own) else m.group(), one)
        body.append(one)
    return wide | {"body": body}


def _require_equal(module: nn.Module, given: dict[str, Any], text: Traced) -> None:
    """Run the text beside the module, in float64 under the lift."""
    given = pytree.tree_map_only(Tensor, lambda t: t.to(torch.float64) if t.is_floating_point() else t, given)
    lines = "\n    ".join([*text["checks"], *text["body"]])
    scope: dict[str, Any] = {"torch": torch}
    whole = given | _defaults(module, given)
    exec(f"def forward(self, {', '.join(whole)}):\n    {lines}\n", scope)
    with torch.no_grad(), computing_in("float64"):
        expected = pytree.tree_leaves(module(**given))
        found = pytree.tree_leaves(scope["forward"](module, **whole))
    if len(expected) != len(found):
        raise Refusal(f"its graph gives {len(found)} outputs, expected {len(expected)}")
    for one, other in zip(found, expected, strict=True):
        if torch.is_tensor(other):
            error = (one - other).abs().max() / other.abs().max().clamp(min=1e-300)
            if one.dtype != other.dtype or not error <= tolerance.TRACED:
                raise Refusal(f"its graph gives {dtype_name(one.dtype)} with error {float(error):.1e}")
