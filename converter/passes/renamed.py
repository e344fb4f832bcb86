"""Call support functions by the argument names that they have, whichever release the source is from."""

import ast

from maxcode.converter import plumbing as tables
from maxcode.converter.context import Context, Definition, broken, callees, copy_facts
from maxcode.converter.example import Example, unchanged
from maxcode.converter.library import function_parameters
from maxcode.converter.passes.keywords import calls_in


def rename_arguments(context: Context) -> None:
    """Rename, move or drop what calls of the support library's namesakes pass; run before calls are read."""
    for definition in context.definitions:
        for function in [n for n in ast.walk(definition.node) if isinstance(n, ast.FunctionDef)]:
            for call in calls_in(function):
                for qualified in _called(call, definition.file):
                    accepted = namesake_parameters(qualified)
                    if accepted:
                        _Renaming(context, function, accepted).apply(call, _parameters(context, qualified))


def namesake_parameters(qualified: str) -> tuple[str, ...]:
    """Parameters of the support function that takes a framework function's place; none where there is no such one."""
    home = tables.namesake(qualified)
    return function_parameters(home, tables.last(qualified)) if home is not None else ()


def _called(call: ast.Call, file) -> set[str]:
    named = file.qualify(call.func.id) if isinstance(call.func, ast.Name) else None
    return {*callees(call), *([named] if named else [])}


def _parameters(context: Context, qualified: str) -> list[str]:
    """The source function's own parameters, as the installed release has them."""
    located = context.project.lookup(qualified)
    if located is None or not isinstance(located[1], ast.FunctionDef):
        return []
    return [a.arg for a in (*located[1].args.posonlyargs, *located[1].args.args)]


class _Renaming:
    def __init__(self, context: Context, function: ast.FunctionDef, accepted: tuple[str, ...]) -> None:
        self.context, self.function, self.accepted = context, function, accepted

    def apply(self, call: ast.Call, own: list[str]) -> None:
        if [self._name(n) for n in own[: len(call.args)]] != list(self.accepted[: len(call.args)]):
            moved = [copy_facts(ast.keyword(name, value), value) for name, value in zip(own, call.args, strict=False)]
            call.args, call.keywords = call.args[len(moved) :], [*moved, *call.keywords]
        for keyword in list(call.keywords):
            if keyword.arg is None and isinstance(keyword.value, ast.Name):
                self._rename_keys(keyword.value.id)
            elif keyword.arg is not None and (name := self._name(keyword.arg)) is None:
                self._assume(keyword.value, keyword.arg)
                call.keywords.remove(keyword)
            elif keyword.arg is not None:
                keyword.arg = name

    def _name(self, name: str) -> str | None:
        """The support function's name for an argument; None for one that it does without."""
        if name in self.accepted:
            return name
        return None if name in tables.UNNEEDED_ARGUMENTS else tables.RENAMED_ARGUMENTS.get(name, name)

    def _rename_keys(self, local: str) -> None:
        """Keys of a dictionary that is written out in the function and handed over whole."""
        for node in ast.walk(self.function):
            if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict)):
                continue
            if not any(isinstance(t, ast.Name) and t.id == local for t in node.targets):
                continue
            for key in [k for k in node.value.keys if isinstance(k, ast.Constant) and isinstance(k.value, str)]:
                at = node.value.keys.index(key)
                name = self._name(key.value)
                if name is None:
                    self._assume(node.value.values[at], key.value)
                    del node.value.keys[at], node.value.values[at]
                else:
                    key.value = name

    def _assume(self, node: ast.expr, name: str) -> None:
        self.context.assume(node, tables.UNNEEDED_ARGUMENTS[name])


def ensures(context: Context, definition: Definition) -> list[str]:
    """Calls of namesakes use none of the names that other releases have."""
    found = []
    for call in calls_in(definition.node):
        for qualified in _called(call, definition.file):
            odd = {k.arg for k in call.keywords} & tables.RENAMED_ARGUMENTS.keys() - {*namesake_parameters(qualified)}
            if namesake_parameters(qualified) and odd:
                found.append(broken(call, f"{qualified} does not take {sorted(odd)}"))
    return found


EXAMPLES = (
    Example(
        """
        from transformers.masking_utils import create_causal_mask

        def forward(config, x, mask, past_key_values, cache_position):
            whole = {"config": config, "past_key_values": past_key_values}
            create_causal_mask(inputs_embeds=x, attention_mask=mask, **whole)
            return create_causal_mask(
                config=config, input_embeds=x, attention_mask=mask,
                cache_position=cache_position, past_key_values=past_key_values,
            )
        """,
        """
        def forward(config, x, mask, past_key_values, cache_position):
            whole = {"config": config, "cache": past_key_values}
            create_causal_mask(inputs_embeds=x, attention_mask=mask, **whole)
            return create_causal_mask(config=config, inputs_embeds=x, attention_mask=mask, cache=past_key_values)
        """,
    ),
    unchanged("""
        def mask(config, past_key_values):
            return past_key_values

        def forward(config, past_key_values):
            return mask(config, past_key_values=past_key_values)
        """),
)  # fmt: skip
