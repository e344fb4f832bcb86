"""Turn a loop over stacked layers into one call of the layer stack, which scans them.

The loop's body becomes a function of the layer and of what is carried from layer to layer. What it reads that depends
on the layer's index (`config.layer_types[i]`) is handed to the stack as a key: only layers with equal keys share a
trace.
"""

import ast

from maxcode.converter import plumbing as tables
from maxcode.converter.context import Context, Definition, broken, seen
from maxcode.converter.example import Example, unchanged
from maxcode.converter.filled import Filled
from maxcode.converter.liveness import bound_before, live_after
from maxcode.converter.nodes import assign, attribute, call, dotted, dress, loads, name, read_before_write, stored
from maxcode.converter.passes.branch_parts import own

_RESIDUAL_AXES = ("activation_batch", "activation_length", "activation_embed")


def stack_layers(context: Context, definition: Definition) -> None:
    """Rewrite the module lists of a class that a method runs layer by layer, and those loops."""
    stacks = _module_lists(definition)
    if not stacks:
        return
    filled = Filled(context)
    rewritten: dict[str, list[tuple[list[ast.stmt], ast.stmt, list[ast.stmt]]]] = {}
    for function in definition.functions():
        for block, around in _statement_lists(function) if function.name != "__init__" else ():
            for statement in block:
                loop = _loop_over(statement, stacks)
                if loop is not None:
                    shared = filled.names(definition, ast.walk(statement))
                    new = _rewritten(context, function, statement, around, shared, *loop)
                    rewritten.setdefault(loop[0], []).append((block, statement, new or []))
    for stack, edits in rewritten.items():
        if all(new for *_, new in edits) and len(edits) == _loops_over(definition, stack):
            for block, statement, new in edits:
                at = block.index(statement)
                block[at : at + 1] = new
            _build_stack(context, stacks[stack])


def _loops_over(definition: Definition, stack: str) -> int:
    """How many loops the methods run over a module list."""
    loops = [
        loop
        for function in definition.functions()
        if function.name != "__init__"
        for loop in ast.walk(function)
        if isinstance(loop, ast.For)
    ]
    return sum(any(_is_stack(n, stack) for n in ast.walk(loop.iter)) for loop in loops)


def _is_stack(node: ast.AST, stack: str) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == stack and ast.unparse(node.value) == "self"


def _module_lists(definition: Definition) -> dict[str, dict]:
    """`self.x = nn.ModuleList([f(i) for i in range(n)])` by attribute name."""
    found: dict[str, dict] = {}
    for function in definition.functions():
        if function.name != "__init__":
            continue
        for node in ast.walk(function):
            if not (
                isinstance(node, ast.Assign)
                and isinstance(node.value, ast.Call)
                and isinstance(node.targets[0], ast.Attribute)
            ):
                continue
            if not ast.unparse(node.value.func).endswith("ModuleList") or len(node.value.args) != 1:
                continue
            made = node.value.args[0]
            if (
                not isinstance(made, ast.ListComp | ast.GeneratorExp)
                or len(made.generators) != 1
                or made.generators[0].ifs
            ):
                continue
            generator = made.generators[0]
            simple = isinstance(generator.target, ast.Name) and isinstance(generator.iter, ast.Call)
            if simple and ast.unparse(generator.iter.func) == "range" and len(generator.iter.args) == 1:
                found[node.targets[0].attr] = {"node": node, "made": made}
    return found


def _statement_lists(function: ast.FunctionDef) -> list[tuple[list[ast.stmt], ast.For | None]]:
    """Blocks that may hold a loop over layers, each with the loop around it, if there is one."""
    found: list[tuple[list[ast.stmt], ast.For | None]] = []

    def visit(block: list[ast.stmt], around: ast.For | None) -> None:
        found.append((block, around))
        for statement in block:
            if isinstance(statement, ast.If):
                visit(statement.body, around)
                visit(statement.orelse, around)
            elif isinstance(statement, ast.For):
                visit(statement.body, around or statement)
            elif isinstance(statement, ast.With):
                visit(statement.body, around)

    visit(function.body, None)
    return found


def _loop_over(statement: ast.stmt, stacks: dict) -> tuple[str, str | None, str, dict[str, ast.expr]] | None:
    """(attribute, index name, layer name, start and stop) of a loop over a known module list."""
    if not isinstance(statement, ast.For) or statement.orelse:
        return None
    iterated, index, target = statement.iter, None, statement.target
    if isinstance(iterated, ast.Call) and ast.unparse(iterated.func) == "enumerate" and len(iterated.args) == 1:
        if not (isinstance(target, ast.Tuple) and all(isinstance(e, ast.Name) for e in target.elts)):
            return None
        index, target = target.elts[0].id, target.elts[1]
        iterated = iterated.args[0]
    part: dict[str, ast.expr] = {}
    if isinstance(iterated, ast.Subscript) and isinstance(iterated.slice, ast.Slice):
        if iterated.slice.step is not None or (iterated.slice.lower is not None and index is not None):
            return None  # `enumerate` of a part counts from zero
        ends = {"start": iterated.slice.lower, "stop": iterated.slice.upper}
        part, iterated = {name: end for name, end in ends.items() if end is not None}, iterated.value
    if not (isinstance(iterated, ast.Attribute) and ast.unparse(iterated.value) == "self" and iterated.attr in stacks):
        return None
    if not isinstance(target, ast.Name):
        return None
    length = stacks[iterated.attr]["made"].generators[0].iter.args[0]
    if "stop" in part and _text(part["stop"]) == _text(length):
        del part["stop"]
    return iterated.attr, index, target.id, part


def _text(node: ast.expr) -> str:
    return ast.unparse(node).removeprefix("self.")


def _rewritten(
    context: Context,
    function: ast.FunctionDef,
    loop: ast.For,
    around: ast.For | None,
    shared: set[str],
    stack: str,
    index: str | None,
    layer: str,
    part: dict[str, ast.expr],
) -> list[ast.stmt] | None:
    body = loop.body
    if any(isinstance(n, ast.Break | ast.Continue | ast.Return | ast.Yield) for s in body for n in own(s)):
        return None
    after = live_after(function, loop, around)
    branches = {s.name for s in body if isinstance(s, ast.FunctionDef)}
    bound = [n for n in stored(body) if n not in (index, layer, *branches)]
    carry = [n for n in bound if n in read_before_write(body, kept=False) or n in after]
    unset = set(carry) - bound_before(function, loop, around)
    if unset & after:
        return None  # only a layer sets it: before the first one there is nothing to hand on
    carry = [n for n in carry if n not in unset]  # bound by each layer that reads it
    carry += sorted(shared - set(carry))  # the same object to the source; within a scan, a value that goes on
    keys = _index_keys(body, index) if index else []
    if not carry or keys is None:
        return None
    caches = [n for n in tables.CACHE_ARGUMENTS if n in {x.id for x in loads(body)}]
    value = name(carry[0]) if len(carry) == 1 else ast.Tuple([name(n) for n in carry], ast.Load())
    arguments = ast.arguments([], [ast.arg(n) for n in (index or "_", layer, *carry)], None, [], [], None, [])
    constraints = [_constrained(context, n) for n in carry if _is_sequence(body, n)]
    end = [*constraints, ast.Return(value)] if len(carry) > 1 or not constraints else [ast.Return(constraints[0].value)]
    step = ast.FunctionDef(f"{layer}_step", arguments, [*body, *end], [], None, type_params=[])
    dress(step, loop)
    run = call(attribute(attribute("self", stack), "run"), name(step.name), *(name(n) for n in carry))
    if caches:
        run.keywords.append(ast.keyword("cache", name(caches[0])))
    if keys:
        made = keys[0] if len(keys) == 1 else ast.Tuple(keys, ast.Load())
        run.keywords.append(ast.keyword("key", ast.Lambda(_parameters(index), dotted(ast.unparse(made)))))
    run.keywords += [ast.keyword(end, value) for end, value in part.items()]
    result = assign(carry, run)
    result.spaced = True
    return [step, result]


def _is_sequence(body: list[ast.stmt], variable: str) -> bool:
    """Whether a carried name was only ever a [batch, length, features] tensor."""
    found = [n for s in body for n in ast.walk(s) if isinstance(n, ast.Name) and n.id == variable and seen(n)]
    return bool(found) and all(
        set(seen(n).get("kinds", ())) == {"tensor"} and seen(n).get("ndims") == [3] for n in found
    )


def _constrained(context: Context, variable: str) -> ast.stmt:
    """`x = constrain(x, …)`: how the residual stream is divided over a mesh."""
    axes = [ast.Constant(a) for a in _RESIDUAL_AXES]
    return assign(variable, call(context.use("sharding", "constrain"), name(variable), *axes))


def _parameters(index: str | None) -> ast.arguments:
    return ast.arguments([], [ast.arg(index or "_")], None, [], [], None, [])


def _index_keys(body: list[ast.stmt], index: str) -> list[ast.expr] | None:
    """The largest subexpressions that read the index and otherwise only the configuration; the index if it escapes.

    What stands under `if x is not None`, where the loop does not bind `x`, counts only then.
    """
    keys: dict[str, tuple[ast.expr, list[list[ast.expr]]]] = {}
    local = set(stored(body))

    def visit(node: ast.AST, guards: list[ast.expr]) -> None:
        is_value = isinstance(node, ast.expr) and not any(isinstance(n, ast.Slice) for n in ast.walk(node))
        if is_value and _reads(node, index):
            names = {n.id for n in loads([node])} - {index}
            if names <= {"self", "config", "len", "range", "min", "max", "isinstance"} and not names & local:
                keys.setdefault(ast.unparse(node), (node, []))[1].append(guards)
                return
        if isinstance(node, ast.If) and _is_presence(node.test, local):
            visit(node.test, guards)
            for child in node.body:
                visit(child, [*guards, node.test])
            for child in node.orelse:
                visit(child, guards)
            return
        for child in ast.iter_child_nodes(node):
            visit(child, guards)

    for statement in body:
        visit(statement, [])
    return [_guarded(node, guards) for node, guards in keys.values()]


def _is_presence(test: ast.expr, local: set[str]) -> bool:
    """`x is not None` of a name that a loop leaves alone."""
    match test:
        case ast.Compare(left=ast.Name(id=name), ops=[ast.IsNot()], comparators=[ast.Constant(value=None)]):
            return name not in local
    return False


def _guarded(key: ast.expr, guards: list[list[ast.expr]]) -> ast.expr:
    """`key if guard else None`, where every place that reads the key stands under the same guard."""
    shared = [g for g in guards[0] if all(any(ast.unparse(g) == ast.unparse(o) for o in other) for other in guards)]
    if not shared:
        return key
    test = shared[0] if len(shared) == 1 else ast.BoolOp(ast.And(), shared)
    return ast.IfExp(test, key, ast.Constant(None))


def _reads(node: ast.AST, index: str) -> bool:
    return any(n.id == index for n in loads([node]))


def _build_stack(context: Context, entry: dict) -> None:
    node, made = entry["node"], entry["made"]
    generator = made.generators[0]
    function = ast.Lambda(
        ast.arguments([], [ast.arg(generator.target.id)], None, [ast.arg("rngs")], [None], None, []), made.elt
    )
    home = ("capture", "CapturingStack") if "capture" in context.support else ("stack", "LayerStack")
    stack = call(context.use(*home), function, generator.iter.args[0])
    stack.is_stack = True
    node.value = stack


def ensures(context: Context, definition: Definition) -> list[str]:
    """No method loops over a stack: its `run` does."""
    stacks = {
        ast.unparse(node.targets[0])
        for node in ast.walk(definition.node)
        if isinstance(node, ast.Assign) and getattr(node.value, "is_stack", False)
    }
    loops = [n for n in ast.walk(definition.node) if isinstance(n, ast.For)]
    over = [
        n for n in loops for child in ast.walk(n.iter) if isinstance(child, ast.expr) and ast.unparse(child) in stacks
    ]
    return [broken(n, "still loops over a stack of layers") for n in over]


EXAMPLES = (
    Example(
        """
        class Net(nn.Module):
            def __init__(self, config):
                super().__init__()
                self.layers = nn.ModuleList([Layer(config, i) for i in range(config.depth)])

            def forward(self, x, mask):
                for i, layer in enumerate(self.layers):
                    x = layer(x, mask[self.config.kinds[i]])
                return x
        """,
        """
        class Net(nn.Module):
            def __init__(self, config):
                super().__init__()
                self.layers = LayerStack(lambda i, *, rngs: Layer(config, i), config.depth)

            def forward(self, x, mask):
                def layer_step(i, layer, x):
                    x = layer(x, mask[self.config.kinds[i]])
                    return x

                x = self.layers.run(layer_step, x, key=lambda i: self.config.kinds[i])
                return x
        """,
    ),
    Example(
        """
        def store(layer, x, shared: dict):
            shared["last"] = x
            return layer(x)

        class Net(nn.Module):
            def __init__(self, config):
                super().__init__()
                self.layers = nn.ModuleList([Layer() for i in range(config.depth)])

            def forward(self, x, first, shared: dict):
                for layer in self.layers[:first]:
                    x = store(layer, x, shared)
                for _ in range(2):
                    for layer in self.layers[first:]:
                        x = layer(x)
                return x
        """,
        """
        def store(layer, x, shared: dict):
            shared["last"] = x
            return layer(x)

        class Net(nn.Module):
            def __init__(self, config):
                super().__init__()
                self.layers = LayerStack(lambda i, *, rngs: Layer(), config.depth)

            def forward(self, x, first, shared: dict):
                def layer_step(_, layer, x, shared):
                    x = store(layer, x, shared)
                    return x, shared

                x, shared = self.layers.run(layer_step, x, shared, stop=first)
                for _ in range(2):
                    def layer_step(_, layer, x):
                        x = layer(x)
                        return x

                    x = self.layers.run(layer_step, x, start=first)
                return x
        """,
    ),
    unchanged(
        """
        class Net(nn.Module):
            def __init__(self, config):
                super().__init__()
                self.layers = nn.ModuleList([Layer(i) for i in range(config.depth)])

            def forward(self, x):
                for layer in self.layers:
                    x = layer(x)
                for layer in self.layers[::2]:
                    x = layer(x)
                return x
        """
    ),
    unchanged(
        """
        class Net(nn.Module):
            def __init__(self, sizes):
                super().__init__()
                self.layers = nn.ModuleList([Layer(s) for s in sizes])

            def forward(self, x):
                for layer in self.layers:
                    x = layer(x)
                return x
        """
    ),
    unchanged(
        """
        class Net(nn.Module):
            def __init__(self, config):
                super().__init__()
                self.layers = nn.ModuleList([Layer(i) for i in range(config.depth)])

            def forward(self, x):
                for layer in self.layers:
                    x = layer(x)
                    if x is None:
                        break
                return x
        """
    ),
)
