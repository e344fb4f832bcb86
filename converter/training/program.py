"""From a training program to `training.py`: which definitions it reaches, how they are converted, and their text."""

import ast
from dataclasses import dataclass, field
from typing import Any

from maxcode.converter import plumbing as tables
from maxcode.converter.collect import _scan
from maxcode.converter.context import Context, Definition, attach_facts
from maxcode.converter.output_records import is_record
from maxcode.converter.passes.fold import Fold
from maxcode.converter.source import Project, SourceFile
from maxcode.converter.training.host import HostPlumbing

_IMPORTS_AND_DEFINITIONS = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass
class Program:
    """What a training program consists of.

    Args:
      context: of the host's definitions.
      definitions: by qualified name.
      entry: name of the function that runs it.
      model: qualified names that modeling.py defines.
    """

    context: Context
    definitions: dict[str, Definition] = field(default_factory=dict)
    entry: str = "main"
    model: frozenset[str] = frozenset()
    shared: frozenset[str] = frozenset()  # names that the script binds for its functions


def collect_program(facts: dict[str, Any], entry: str, files: dict[str, str], model: frozenset[str]) -> Program:
    """Everything that the program of `facts["training"]` reaches and modeling.py does not define."""
    training = facts["training"]
    project = Project(training["module"], training["file"], files)
    context = Context(project, facts, entry, is_program=True)
    program = Program(context, model=model)
    file = project.file(training["module"])
    attach_facts(file, facts)
    file.prepared = True
    file.seeds = ast.parse(file.text)
    statements = _script(file)
    main = _main(file, statements)
    program.entry = main.name
    pending = [Definition(main.name, file, main)]
    attributes: set[str] = {"__getitem__", "__len__", "__iter__", "__call__", "__init__", "get_lr"}
    while pending:
        definition = pending.pop()
        if definition.qualified in program.definitions:
            continue
        _simplify(context, definition)
        program.definitions[definition.qualified] = definition
        for reached in list(program.definitions.values()):
            for name in _scan(reached, attributes):
                found = _locate(program, reached.file, name)
                if found is not None and found.qualified not in program.definitions:
                    pending.append(found)
    _share_globals(program, main)
    context.definitions = sorted(
        program.definitions.values(), key=lambda d: (d.node is main, d.file.path, d.node.lineno)
    )
    return program


def _simplify(context: Context, definition: Definition) -> None:
    node = HostPlumbing(context, {}).visit(definition.node)
    for _ in range(2):
        node = Fold().visit(node)
    definition.node = node


def _script(file: SourceFile) -> list[ast.stmt]:
    """The statements of the file that are the program: those under a main guard and those that define nothing."""
    found: list[ast.stmt] = []
    for statement in file.tree.body:
        if isinstance(statement, _IMPORTS_AND_DEFINITIONS):
            continue
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            continue
        found += statement.body if _is_guard(statement) else [statement]
    return found


def _is_guard(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and "__name__" in ast.unparse(statement.test)


def _main(file: SourceFile, statements: list[ast.stmt]) -> ast.FunctionDef:
    """The function that the script calls, where calling it is all that it does, else one made of its statements."""
    running = [s for s in statements if not _is_constant(s)]
    if len(running) == 1 and isinstance(running[0], ast.Expr) and isinstance(running[0].value, ast.Call):
        called = running[0].value
        own = file.outline.get(ast.unparse(called.func))
        if isinstance(own, ast.FunctionDef) and not called.args and not called.keywords:
            return file.definitions[own.name]
    name = "main" if "main" not in file.outline else "run"
    made = ast.FunctionDef(
        name, ast.arguments([], [], None, [], [], None, []), running or [ast.Pass()], [], None, type_params=[]
    )
    made.file, made.spaced = file, True
    return ast.copy_location(made, running[0]) if running else made


def _is_constant(statement: ast.stmt) -> bool:
    """Whether a top-level statement gives a name a plain value, which stays a constant of the module."""
    if not isinstance(statement, ast.Assign) or not all(isinstance(t, ast.Name) for t in statement.targets):
        return False
    plain = (ast.Constant, ast.Tuple, ast.List, ast.Dict, ast.BinOp, ast.UnaryOp, ast.Name, ast.operator, ast.unaryop)
    return all(isinstance(n, (*plain, ast.expr_context)) for n in ast.walk(statement.value))


def _locate(program: Program, file: SourceFile, name: str) -> Definition | None:
    qualified = file.qualify(name)
    if qualified is None or qualified.split(".")[0] in ("torch", "transformers") or qualified in program.model:
        return None
    if is_record(program.context, qualified):
        return None
    located = program.context.project.lookup(qualified)
    if located is None:
        return None
    home, node = located
    if isinstance(node, ast.Assign | ast.AnnAssign) and not (isinstance(node, ast.Assign) and _is_constant(node)):
        return None  # made by the script's own statements
    if not hasattr(home, "prepared"):
        home.prepared = True
        attach_facts(home, program.context.facts)
    return Definition(tables.last(qualified), home, node)


def _share_globals(program: Program, main: ast.FunctionDef) -> None:
    """Names of the script that its functions read are declared global where they are bound."""
    bound = {n.id for n in ast.walk(main) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    wanted: set[str] = set()
    for definition in program.definitions.values():
        if definition.node is main:
            continue
        for function in definition.functions():
            own = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
            own |= {a.arg for a in ast.walk(function.args) if isinstance(a, ast.arg)}
            wanted |= {n.id for n in ast.walk(function) if isinstance(n, ast.Name)} - own
    shared = sorted(bound & wanted)
    if shared and not any(
        isinstance(d.node, ast.FunctionDef) and d.node is main and d.file.outline.get(main.name) is main
        for d in program.definitions.values()
    ):
        main.body.insert(0, ast.Global(shared))
        program.shared = frozenset(shared)
