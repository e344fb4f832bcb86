"""Constructors: torch modules become support layers, parameters and buffers get axes and dtypes.

The run configuration and `rngs` travel down to every class below which parameters are made. It is `config`, which a
framework's source hands down itself, or `run_config` where a plain source calls an object of its own `config`.
"""

import ast

from maxcode.converter import plumbing as tables
from maxcode.converter import registry
from maxcode.converter.axes import axes_tuple, axis_of, module_axes, unique
from maxcode.converter.calls import Function
from maxcode.converter.config_class import module_parameters
from maxcode.converter.constructing import after_docstring, after_super, all_bases, fqn, is_unfilled, rank_of
from maxcode.converter.context import Context, Definition, callees, kinds
from maxcode.converter.default_layers import convert_defaults
from maxcode.converter.held import HeldParameters, becomes_attribute, is_parameter, keeps_table, registers_items
from maxcode.converter.layer_values import DROPPED, RUN, apply_layer, is_layer_class, layer_value
from maxcode.converter.library import support_keywords
from maxcode.converter.nodes import attribute, call, dotted, dress, name, typed
from maxcode.converter.passes.needs import BUFFER, PARAMETER, Needs, class_name, is_super_init, torch_base
from maxcode.converter.rule import NoRule
from maxcode.converter.ties import tie_weights


def convert_constructors(context: Context) -> None:
    """Rewrite the constructor of every module class, and every construction of one."""
    needs = Needs(context)
    for definition in context.definitions:
        if isinstance(definition.node, ast.Assign):
            # A module-level table of stateless layers (`{"relu": nn.ReLU()}`).
            holder = ast.FunctionDef(definition.name, ast.arguments([], [], None, [], [], None, []), [], [], None)
            Constructors(context, definition, holder, needs).visit(definition.node)
        for function in list(definition.functions()):
            convert_defaults(context, definition, function, Constructors(context, definition, function, needs))
            if definition.is_class or needs.of_function(Function(definition, function)):
                Constructors(context, definition, function, needs).run()
        if definition.is_class:
            tie_weights(context, definition)


_PLACES = ("device", "dtype")  # arguments of a layer that say where it is made


class Constructors(ast.NodeTransformer):
    """One method; only what builds modules and parameters changes."""

    def __init__(self, context: Context, definition: Definition, function: ast.FunctionDef, needs: Needs) -> None:
        self.context, self.definition, self.function, self.needs = context, definition, function, needs
        self.run_name = context.run_name
        self.extra = needs.of_function(Function(definition, function))
        self.held = HeldParameters(definition, self._parameter)
        self.leaves: list[str] = []
        self.local: set[str] = set()  # names that hold a parameter
        self.made = 0

    def run(self) -> None:
        """Rewrite the method in place."""
        self.function.body = [s for statement in self.function.body for s in self._statements(statement)] or [
            ast.Pass()
        ]
        for keyword in self.extra:
            self.function.args.kwonlyargs.append(ast.arg(keyword))
            self.function.args.kw_defaults.append(None)
        if self.leaves:
            self._declare_leaves()
        is_constructor = self.function.name == "__init__"
        if is_constructor and self.run_name in self.extra and self.definition.qualified == self.context.entry:
            self._build_from_config()

    def _build_from_config(self) -> None:
        """Give an entry class whose source knows no configuration the way to build it from one."""
        own = ast.Assign([ast.Attribute(name("self"), self.run_name, ast.Store())], name(self.run_name), lineno=0)
        self.function.body.insert(after_super(self.function.body), own)
        parameters = [a.arg for a in self.function.args.args[1:]] + [a.arg for a in self.function.args.kwonlyargs]
        fields = {field for field, *_ in module_parameters(self.context.facts)}
        if self.function.args.kwarg is not None:  # what the constructor takes as `**kwargs`
            parameters += sorted(fields - set(parameters))
        made = call("cls", **{p: dotted(f"config.{p}") for p in parameters if p in fields})
        made.keywords += [ast.keyword(self.run_name, name("config")), ast.keyword("rngs", name("rngs"))]
        method = ast.parse(
            '@classmethod\ndef from_config(cls, config, *, rngs):\n    """Build with random weights."""'
        ).body[0]
        method.body.append(ast.Return(made))
        method.spaced = True
        body = self.definition.node.body
        body.insert(body.index(self.function), method)

    def _statements(self, statement: ast.stmt) -> list[ast.stmt]:
        result = self.visit(statement)
        return [s for s in (result if isinstance(result, list) else [result]) if s is not None]

    def _declare_leaves(self) -> None:
        node = self.definition.node
        leaf = self.context.use("layers", "Leaf").id
        for attr in reversed(dict.fromkeys(self.leaves)):
            node.body.insert(
                after_docstring(node), ast.Assign([ast.Name(attr, ast.Store())], call(leaf), lineno=node.lineno)
            )
        computed = call(self.context.use("layers", "compute_dtype"), name(self.run_name))
        dtype = ast.Assign([attribute("self", "dtype")], computed, lineno=0)
        dtype.targets[0].ctx = ast.Store()
        self.function.body.insert(after_super(self.function.body), dtype)

    def visit_Assign(self, node: ast.Assign) -> ast.stmt | list[ast.stmt]:
        target = node.targets[0]
        if isinstance(target, ast.Subscript) and isinstance(node.value, ast.Call):
            node.value = self.held.visit(node.value)
        if isinstance(target, ast.Name) and is_parameter(self.definition, node.value):
            node.value = self._local_parameter(node.value, target.id)
            return node
        if isinstance(target, ast.Attribute):
            stored = self._stored(node.value, target.attr) if ast.unparse(target.value) == "self" else None
            if stored is not None:
                node.value = stored
                return node
            if is_parameter(self.definition, node.value):  # of a layer that was built without it
                node.value = self._parameter(node.value)
                return node
            self._note_leaf(target, node.value)
            if registers_items(self.definition, self.function, target, node.value):
                # A plain list: its layers are registered under names of their own.
                node.value = call(self.context.use("container", "ModuleList"), self.visit(node.value))
                aliases = ast.Tuple([ast.Starred(dotted("self.aliases")), ast.Constant(target.attr)], ast.Load())
                return [node, dress(ast.Assign([attribute("self", "aliases")], aliases), node)]
            if self.function.name == "__init__" and keeps_table(self.context, self.definition, target):
                node.value = typed(call(self.context.use("layers", "constant"), self.visit(node.value)), node.value)
                return node
            if self._is_tie(target, node.value):
                ties = ast.Dict([fqn(target)], [fqn(node.value)])
                return dress(ast.Expr(call(self.context.use("leaves", "tie_weights"), name("self"), ties)), node)
        self.generic_visit(node)
        return node

    def visit_Return(self, node: ast.Return) -> ast.Return:
        if is_parameter(self.definition, node.value):
            node.value = self._parameter(node.value)
            return node
        self.generic_visit(node)
        return node

    def _local_parameter(self, made: ast.Call, variable: str) -> ast.expr:
        """A parameter under a local name; its value alone where it is only computed with."""
        if not becomes_attribute(self.function, variable):
            return self.visit(made.args[0] if made.args else made.keywords[0].value)
        self.local.add(variable)
        return self._parameter(made)

    def _note_leaf(self, target: ast.Attribute, value: ast.expr) -> None:
        """Declare an attribute that gets a parameter from a local name, or from a function of ours that makes one."""
        is_local = isinstance(value, ast.Name) and value.id in self.local
        is_made = (
            isinstance(value, ast.Call) and kinds(value) == {"param"} and self.needs.of_call(value, self.definition)
        )
        if ast.unparse(target.value) == "self" and (is_local or is_made):
            self.leaves.append(target.attr)

    def _is_tie(self, target: ast.Attribute, value: ast.expr) -> bool:
        """Whether a constructor gives one layer the parameter of another (`self.head.weight = self.embed.weight`)."""
        both = isinstance(value, ast.Attribute) and kinds(value) == {"param"} and self.function.name == "__init__"
        return both and all(
            ast.unparse(n).startswith("self.") and ast.unparse(n).count(".") > 1 for n in (target, value)
        )

    def _stored(self, value: ast.expr, attr: str) -> ast.expr | None:
        """The value of an attribute that is a parameter or buffer, or is one on a condition; else None."""
        if isinstance(value, ast.IfExp):
            branches = [self._stored(branch, attr) for branch in (value.body, value.orelse)]
            if branches == [None, None]:
                return None
            value.body, value.orelse = (new or old for new, old in zip(branches, (value.body, value.orelse)))
            return value
        qualified = class_name(self.definition, value) if isinstance(value, ast.Call) else None
        if qualified in PARAMETER:
            self.leaves.append(attr)
            return self._parameter(value)
        return self._buffer(value.args[0], value, attr) if qualified in BUFFER else None

    def visit_Expr(self, node: ast.Expr) -> ast.stmt | None:
        made = node.value
        if isinstance(made, ast.Call) and is_super_init(made):
            return self._super_init(node, made)
        if isinstance(made, ast.Call) and ast.unparse(made.func) in ("self.register_buffer", "self.register_parameter"):
            return self._registered(node, made)
        self.generic_visit(node)
        return node

    def _super_init(self, node: ast.Expr, made: ast.Call) -> ast.stmt | None:
        made.args = [self.visit(argument) for argument in made.args]
        for keyword in made.keywords:
            keyword.value = self.visit(keyword.value)
        ran = [name.removesuffix(".__init__") for name in callees(made)]  # of a mixin the run knows what comes next
        base = self.needs.graph.base(self.definition) or (self.context.definition(ran[0]) if len(ran) == 1 else None)
        if base is not None and self.needs.graph.method(base.qualified, "__init__") is not None:
            made.keywords += self._extra(self.needs.of(base), made)
            return node
        layer = torch_base(self.definition)
        if layer is not None:
            return self._layer_super_init(node, made, layer)
        bases = [ast.unparse(b) for b in all_bases(self.needs.graph, self.definition)]
        if any(tables.last(base) == "PreTrainedModel" for base in (*bases, *ran)):
            return dress(ast.Assign([ast.Attribute(name("self"), "config", ast.Store())], name("config")), node)
        return None

    def _layer_super_init(self, node: ast.Expr, made: ast.Call, layer: str) -> ast.stmt:
        """`super().__init__(…)` below a torch layer: its support class takes axes, config and rngs too."""
        accepted = support_keywords(tables.last(layer))
        axes = module_axes(layer, made, self.function)
        values = {"axes": axes_tuple(axes) if any(axes) else None, "config": self._config(), "rngs": name("rngs")}
        while made.args and ast.unparse(made.args[-1]) in _PLACES:
            made.args.pop()  # by position they come last, and say nothing here
        made.keywords = [k for k in made.keywords if k.arg not in registry.unread_parameters(layer)]
        made.keywords += [ast.keyword(k, v) for k, v in values.items() if k in accepted and v is not None]
        return node

    def _registered(self, node: ast.Expr, made: ast.Call) -> ast.stmt | None:
        arguments = {
            **dict(zip(("name", "value", "persistent"), made.args, strict=False)),
            **{k.arg: k.value for k in made.keywords},
        }
        value = arguments.get("value", arguments.get("tensor", arguments.get("param")))
        is_table = isinstance(arguments.get("persistent"), ast.Constant) and not arguments["persistent"].value
        if not isinstance(arguments["name"], ast.Constant) and value is not None and is_table:
            # A table that no checkpoint holds may have any name: it is read by `getattr` with the same one.
            made.keywords = [ast.keyword("persistent", ast.Constant(False))]
            table = self._buffer(value, made, None)
            return dress(ast.Expr(call("setattr", name("self"), self.visit(arguments["name"]), table)), node)
        if not isinstance(arguments["name"], ast.Constant) or value is None:
            self.context.gap(
                "CV120", node, "torch.nn.Module.register_buffer", "its name is computed", "give it a literal name"
            )
            return node
        attr = str(arguments["name"].value)
        target = ast.Attribute(name("self"), attr, ast.Store())
        if isinstance(value, ast.Constant) and value.value is None:
            return dress(ast.Assign([target], value), node)
        if made.func.attr == "register_parameter":
            self.leaves.append(attr)
            return dress(ast.Assign([target], self._parameter(value) if isinstance(value, ast.Call) else value), node)
        wrapped = call("Buffer", value)
        if "persistent" in arguments:
            wrapped.keywords.append(ast.keyword("persistent", arguments["persistent"]))
        return dress(ast.Assign([target], self._buffer(value, wrapped, attr)), node)

    def _parameter(self, node: ast.Call) -> ast.expr:
        value = node.args[0] if node.args else node.keywords[0].value
        if is_unfilled(value) and not value.args:
            value.args = [k.value for k in value.keywords if k.arg == "size"]
            value.keywords = [k for k in value.keywords if k.arg != "size"]
        keywords = [
            ast.keyword("axes", axes_tuple(self._parameter_axes(node, value))),
            ast.keyword("config", name(self.run_name)),
        ]
        if is_unfilled(value) and rank_of(node, value) != 1:
            shape = value.args
            is_whole = len(shape) == 1 and (
                isinstance(shape[0], ast.Tuple | ast.List) or bool(kinds(shape[0]) & {"tuple", "list"})
            )
            size = shape[0] if is_whole else ast.Tuple(shape, ast.Load())
            value = typed(call(self.context.use("layers", "normal"), size, ast.Constant(0.02)), value)
            keywords.append(ast.keyword("rngs", name("rngs")))
        return typed(ast.Call(self.context.use("layers", "param"), [value], keywords), node)

    def _parameter_axes(self, node: ast.Call, value: ast.expr) -> tuple[str | None, ...]:
        rank = rank_of(node, value)
        sizes = []
        if isinstance(value, ast.Call):
            sizes = [a for a in value.args if not isinstance(a, ast.Starred)]
            if len(sizes) == 1 and isinstance(sizes[0], ast.Tuple | ast.List):
                sizes = list(sizes[0].elts)
        axes = [axis_of(s, self.function) for s in sizes]
        if rank == 1 and axes in (["embed"], [None]):
            axes = ["norm"]
        if rank is not None and len(axes) != rank:
            return (None,) * rank
        return unique(axes)

    def _buffer(self, value: ast.expr, node: ast.Call, attr: str | None) -> ast.expr:
        persistent = next((k.value for k in node.keywords if k.arg == "persistent"), ast.Constant(True))
        self.made += 1
        if isinstance(persistent, ast.Constant) and not persistent.value:
            # `.to(dtype)` of a plain module casts its tables too; a framework's loader leaves them as they were built.
            config = {"config": name(self.run_name)} if self.context.is_plain else {}
            return typed(call(self.context.use("layers", "constant"), self.visit(value), **config), node)
        if attr is None:
            self.context.gap(
                "CV121", node, "torch.nn.Buffer", "a persistent buffer is set under a computed name", "name it"
            )
        else:
            self.leaves.append(attr)
        may_be_none = isinstance(value, ast.Name) and "none" in kinds(value)
        made = typed(call(self.context.use("layers", "Buffer"), self.visit(value), config=name(self.run_name)), node)
        if may_be_none:
            given = ast.Compare(name(value.id), [ast.IsNot()], [ast.Constant(None)])
            return typed(ast.IfExp(given, made, ast.Constant(None)), node)
        return made

    def visit_Call(self, node: ast.Call) -> ast.expr:
        if class_name(self.definition, node) in BUFFER:
            return self._buffer(node.args[0], node, None)
        needed = self.needs.of_call(node, self.definition)  # by what ran, so before anything is rewritten
        self.held.fill(node)
        self.generic_visit(node)
        if needed:
            node.keywords += self._extra(needed, node)
            return node
        if getattr(node, "is_stack", False):
            node.keywords = [ast.keyword("config", self._config()), ast.keyword("rngs", name("rngs"))]
            return node
        qualified = class_name(self.definition, node)
        if qualified is None:
            return self._chosen_class(node)
        canonical = registry.canonical(qualified)
        is_layer = canonical.startswith("torch.nn.") and tables.last(canonical)[:1].isupper()
        if canonical in registry.MODULES and self._is_dynamic(node.func):
            return self._chosen_class(node)
        if canonical in registry.MODULES or is_layer:
            return self._module(node, canonical) if canonical not in PARAMETER | BUFFER else node
        found = self.context.definition(qualified)
        if found is not None and found.is_class:
            node.keywords += self._extra(self.needs.of(found), node)
        return node

    def _chosen_class(self, node: ast.Call) -> ast.expr:
        """A class picked at run time (`cls = A if flag else B; cls(…)`): choices agree on what to pass, or get all."""
        layers = [c for c in callees(node) if is_layer_class(c)]
        found = [d for d in (self.context.definition(c) for c in callees(node)) if d is not None and d.is_class]
        if layers:
            return self._chosen_layer(node, layers, [frozenset(self.needs.of(d)) for d in found])
        if found:
            needed = dict.fromkeys(k for d in found for k in self.needs.of(d))
            node.keywords += self._extra(tuple(needed), node)
        return node

    def _is_dynamic(self, function: ast.expr) -> bool:
        """Whether a class is called by another name than its own: a parameter, a table's entry, a choice."""
        roots = [n.id for n in ast.walk(function) if isinstance(n, ast.Name)]
        known = [self.definition.file.qualify(root) or "" for root in roots]
        return bool(roots) and not any(name.startswith("torch") or is_layer_class(name) for name in known)

    def _chosen_layer(self, node: ast.Call, layers: list[str], others: list[frozenset[str]]) -> ast.expr:
        """A torch layer that is called as a value: with what its support class takes, if all that ran agree."""
        try:
            values = [layer_value(layer) for layer in layers]
        except NoRule:  # reported where the class is named
            return node
        takes = {frozenset(v.keywords & set(RUN)) for v in values} | {frozenset(o & set(RUN)) for o in others}
        if any(v.is_function for v in values) and not others:
            takes = {frozenset()}  # beside a function only layers without weights make sense: they need neither
        node.keywords = [k for k in node.keywords if k.arg not in DROPPED]
        if all(v.is_function for v in values):
            node.args = []
        if len(takes) != 1 or (any(v.is_function for v in values) and (node.args or node.keywords)):
            reason = "the classes that were called here take different arguments"
            self.context.gap("CV125", node, layers[0], reason, "call each class by its own name")
            return node
        axes = {module_axes(registry.canonical(layer), node, self.function) for layer in layers}
        if len(axes) == 1 and any(next(iter(axes))) and not others and all("axes" in v.keywords for v in values):
            node.keywords.append(ast.keyword("axes", axes_tuple(axes.pop())))
        node.keywords += self._extra(tuple(k for k in (self.run_name, "rngs") if k in next(iter(takes))), node)
        return node

    def _extra(self, needed: tuple[str, ...], node: ast.Call) -> list[ast.keyword]:
        given = {k.arg for k in node.keywords}
        values = {self.run_name: self._config(), "rngs": name("rngs")}
        return [ast.keyword(k, values[k]) for k in needed if k not in given]

    def _config(self) -> ast.expr:
        taken = {a.arg for a in (*self.function.args.args, *self.function.args.kwonlyargs)}
        if self.function.name != "__init__" and self.run_name not in taken | set(self.extra):
            return dotted(f"self.{self.run_name}")
        return name(self.run_name)

    def _module(self, node: ast.Call, canonical: str) -> ast.expr:
        try:
            applied = apply_layer(canonical, node, self.function)
        except NoRule as missing:
            self.context.gap("CV103", node, canonical, missing.reason, "add a module rule in converter/rules/modules/")
            return call(
                self.context.use("gaps", "gap"), ast.Constant("CV103"), ast.Constant(f"{canonical}: {missing.reason}")
            )
        self.context.imports |= applied.imports
        self.context.helpers |= applied.helpers
        made = applied.expr
        if not isinstance(made, ast.Call):
            return typed(made, node)
        accepted = support_keywords(ast.unparse(made.func))
        made.func = self.context.distinct(made.func)
        if "axes" in accepted:
            axes = module_axes(canonical, node, self.function)
            if any(axes):
                made.keywords.append(ast.keyword("axes", axes_tuple(axes)))
        for keyword, value in (("config", self._config()), ("rngs", name("rngs"))):
            if keyword in accepted:
                made.keywords.append(ast.keyword(keyword, value))
        return typed(made, node)
