"""Which names may share memory, followed through one function in the order in which it runs.

Torch writes in place and every view shows it; a JAX array never changes, so `InPlace` rebinds the written name alone. A
name that shared the written memory then holds an old value: it is stale, and reading it is what must not happen.
"""

import ast
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

Storage = tuple[str, object]
Storages = frozenset[Storage]
NOTHING: Storages = frozenset()

_fresh = itertools.count()


def fresh() -> Storages:
    """Memory that no name holds yet."""
    return frozenset({("new", next(_fresh))})


@dataclass
class State:
    """Memory held by each name or dotted path, and the writes that left some of them stale."""

    held: dict[str, Storages] = field(default_factory=dict)
    stale: dict[str, ast.AST] = field(default_factory=dict)

    def bind(self, key: str, storages: Storages) -> None:
        """Bind a name or path to other memory; what hangs below it (`x.y` for `x`) is forgotten."""
        for other in [k for k in self.held if k.startswith(f"{key}.")]:
            del self.held[other]
            self.stale.pop(other, None)
        self.held[key] = storages
        self.stale.pop(key, None)

    def add(self, key: str, storages: Storages) -> None:
        """Let a container hold more."""
        self.held[key] = self.held.get(key, NOTHING) | storages

    def write(self, storages: Storages, node: ast.AST, through: str | None) -> None:
        """Note a write: all holders of the memory are stale but the name that is rebound to the result.

        Where that name is an attribute, the objects that it hangs from are the same ones, and not stale; except a
        record of which two fields share memory.
        """
        joint = any(kind == "joint" for kind, _ in storages)
        for key, held in self.held.items():
            owner = through is not None and not joint and through.startswith(f"{key}.")
            if key != through and not owner and held & storages:
                self.stale[key] = node

    def copy(self) -> "State":
        """An independent state for one branch."""
        return State(dict(self.held), dict(self.stale))

    def join(self, others: Iterable["State"]) -> None:
        """Become what holds after any of several branches."""
        held: dict[str, Storages] = {}
        stale: dict[str, ast.AST] = {}
        for state in others:
            for key, storages in state.held.items():
                held[key] = held.get(key, NOTHING) | storages
            stale |= state.stale
        self.held, self.stale = held, stale

    def read(self, key: str) -> Storages:
        """Memory of a name or path; what no statement has bound yet has memory of its own, or its owner's."""
        if key not in self.held:
            owner = key
            while "." in owner and (owner := owner.rpartition(".")[0]) not in self.held:
                pass
            held = self.held.get(owner)
            # `self` is the object itself; other names may hold a record that was made of other names.
            self.held[key] = frozenset({("path", key)}) if held in (None, {("path", owner)}) else held
        return self.held[key]


@dataclass
class Summary:
    """Of a function: parameters whose memory it writes, and those whose memory its result may share."""

    writes: set[str] = field(default_factory=set)
    own: set[str] = field(default_factory=set)  # attributes of `self` whose memory it writes
    returns: set[str] = field(default_factory=set)
    joint: bool = False  # whether two of its results share memory


def key_of(node: ast.expr) -> str | None:
    """`x` or `self.x.y` as text; None for anything that is no plain name or path."""
    inner = node
    while isinstance(inner, ast.Attribute):
        inner = inner.value
    return ast.unparse(node) if isinstance(inner, ast.Name) else None


def root_of(node: ast.expr) -> ast.expr:
    """What a chain of subscripts starts from."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return node


def run_block(
    body: list[ast.stmt],
    state: State,
    simple: Callable[[ast.stmt, State], None],
    enter: Callable[[ast.stmt, State], None],
) -> bool:
    """Follow a block: `simple` runs plain statements, `enter` the head of compound ones.

    Returns False when control never falls out of its end.
    """
    return all(_run(statement, state, simple, enter) for statement in body)


def _run(statement: ast.stmt, state: State, simple: Callable, enter: Callable) -> bool:
    if isinstance(statement, ast.If | ast.Match):
        enter(statement, state)
        bodies = (
            [statement.body, statement.orelse]
            if isinstance(statement, ast.If)
            else [c.body for c in statement.cases] + [[]]
        )
        branches = [(state.copy(), b) for b in bodies]
        ended = [s for s, b in branches if run_block(b, s, simple, enter)]
        state.join(ended)
        return bool(ended)
    if isinstance(statement, ast.For | ast.While | ast.AsyncFor):
        before = state.copy()
        for _ in range(2):  # the second round sees what the first one left behind
            enter(statement, state)
            run_block(statement.body, state, simple, enter)
        if not getattr(statement, "never_empty", False):
            state.join([before, state.copy()])
        return run_block(statement.orelse, state, simple, enter)
    if isinstance(statement, ast.With | ast.AsyncWith):
        enter(statement, state)
        return run_block(statement.body, state, simple, enter)
    if isinstance(statement, ast.Try):
        run_block(statement.body, state, simple, enter)
        after = [state.copy()]
        for handler in statement.handlers:
            branch = state.copy()
            run_block(handler.body, branch, simple, enter)
            after.append(branch)
        state.join(after)
        return run_block([*statement.orelse, *statement.finalbody], state, simple, enter)
    simple(statement, state)
    return not isinstance(statement, ast.Return | ast.Raise | ast.Continue | ast.Break)
