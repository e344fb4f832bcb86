"""Running a user's training program as it stands: the script's own statements, or the function that was named."""

import ast
import contextlib
import copy
import functools
import inspect
import os
import sys
import tempfile
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

from maxcode.evaluator.oracle.errors import OracleError
from maxcode.evaluator.oracle.importing import file_module_name
from maxcode.evaluator.oracle.instrument import CALL, RECORD, InstrumentingFinder, Recorder, _Wrap
from maxcode.evaluator.oracle.script import RunAsMain, has_program

SHORT = 2  # batches of every loader once enough steps were seen


class Enough(BaseException):
    """Ends a program whose first steps were recorded; no handler of the program's own takes it for an error."""


class Program:
    """One run of a training program.

    Args:
      training: {"file": path, "entry": name of a function or class, or null for the script itself}.
      recorder: notes facts of every expression of the file and the files beside it.
      rewrite: changes the file's syntax tree before it is compiled (see `regions.Capture`).
    """

    def __init__(
        self,
        training: dict[str, Any],
        recorder: Recorder | None = None,
        rewrite: Callable[[str, ast.Module], ast.Module] = lambda path, tree: tree,
    ) -> None:
        self.path, self.entry = Path(training["file"]).resolve(), training.get("entry")
        self.recorder, self.rewrite = recorder, rewrite
        self.name = training.get("module") or file_module_name(self.path)
        self.tree = ast.parse(self.path.read_bytes(), str(self.path))
        self.module: Any = None
        self.globals: dict[str, Any] = {}  # names that a rewritten file calls

    def run(self, watching: Any, *, seconds: float) -> bool:
        """Run to the end, or until `watching` has had enough or the time is up. Returns whether it ended by itself.

        Raises:
          OracleError: the program raised, or there is no way to start it.
        """
        deadline = time.monotonic() + seconds
        with _working_folder(self.path.parent), _quiet(), _shortened(lambda: self._late(watching, deadline)):
            try:
                self._start()
            except Enough:
                return False
            except SystemExit as leaving:
                if leaving.code:
                    raise self._raised(leaving) from leaving
            except Exception as error:
                raise self._raised(error) from error
        return True

    def _late(self, watching: Any, deadline: float) -> bool:
        if time.monotonic() > deadline:
            raise Enough
        return watching.seen_enough()

    def _raised(self, error: BaseException) -> OracleError:
        frames = [f for f in inspect.getinnerframes(error.__traceback__) if f.filename == str(self.path)]
        where = f"{self.path}:{frames[-1].lineno}" if frames else str(self.path)
        do = "run it with python first; it must work without arguments on a CPU"
        return OracleError(where, f"{type(error).__name__}: {error}", "a program that runs", do)

    def _start(self) -> None:
        tree = RunAsMain().visit(self.rewrite(str(self.path), copy.deepcopy(self.tree)))
        self.module = types.ModuleType(self.name)
        self.module.__file__ = str(self.path)
        sys.modules[self.name] = self.module
        vars(self.module).update(self.globals)
        finder = None
        if self.recorder is not None:
            positions = self.recorder.positions[str(self.path)] = []
            self.recorder.files[str(self.path)] = {}
            wrap = _Wrap(str(self.path), positions)
            wrap.depth = 1  # a script's own statements are the program
            tree = wrap.visit(tree)
            vars(self.module)[RECORD], vars(self.module)[CALL] = self.recorder.value, self.recorder.call
            folder = str(self.path.parent)
            finder = InstrumentingFinder(self.recorder, lambda name, origin: origin.startswith(folder))
            sys.meta_path.insert(0, finder)
        runs = has_program(self.tree)
        try:
            exec(compile(ast.fix_missing_locations(tree), str(self.path), "exec"), vars(self.module))
            if not runs:
                self._call()
        finally:
            if finder is not None:
                sys.meta_path.remove(finder)

    def _call(self) -> None:
        """Call the function that was named, or `main`, or `train`, with the file's own `get_train_inputs()` if any."""
        own = getattr(self.module, "get_train_inputs", None)
        names = [self.entry] if self.entry else [n for n in ("main", "train") if hasattr(self.module, n)]
        function = getattr(self.module, names[0]) if names else None
        if function is None:
            do = "name a function, or give the file a main guard"
            raise OracleError(str(self.path), "nothing to run", "a script, or a function main or train", do)
        values = own() if own else ()
        needed = [
            p.name
            for p in inspect.signature(function).parameters.values()
            if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
        ]
        if needed and own is None:
            do = f"call it under a main guard, or write get_train_inputs() that gives {', '.join(needed)}"
            raise OracleError(
                f"{self.path}:{names[0]}", f"needs {', '.join(needed)}", "a function to call as it is", do
            )
        function(**values) if isinstance(values, dict) else function(*values)


@contextlib.contextmanager
def _working_folder(folder: Path) -> Iterator[None]:
    """Run in a scratch folder that shows the program's own files; the script's folder is on sys.path, as in Python."""
    before, arguments = Path.cwd(), sys.argv
    with tempfile.TemporaryDirectory(prefix="program-") as scratch:
        for entry in folder.iterdir():
            Path(scratch, entry.name).symlink_to(entry)
        sys.path.insert(0, str(folder))
        sys.argv = [str(folder / "program.py")]
        os.chdir(scratch)
        try:
            yield
        finally:
            os.chdir(before)
            sys.argv = arguments
            sys.path.remove(str(folder))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """What the program prints goes nowhere, and what it saves is not written."""
    save = torch.save
    torch.save = functools.wraps(save)(lambda *args, **kwargs: None)
    try:
        with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
            yield
    finally:
        torch.save = save


@contextlib.contextmanager
def _shortened(enough: Callable[[], bool]) -> Iterator[None]:
    """Once `enough()`, passes over a loader end after a few batches, so that the rest of the program is reached."""
    original = DataLoader.__iter__

    def batches(loader: Any) -> Iterator[Any]:
        for number, batch in enumerate(original(loader)):
            if enough() and number >= SHORT:
                return
            yield batch

    DataLoader.__iter__ = batches
    try:
        yield
    finally:
        DataLoader.__iter__ = original
