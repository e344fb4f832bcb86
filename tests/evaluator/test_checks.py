"""The checks on a small hand-written package: they pass on it, and each fails on the fault that it is there for."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.numpy import load_file, save_file

ENVIRONMENT = {"OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"}


def run_checks(run, package, checks, out):
    """Results of the worker by check name."""
    command = [sys.executable, "-m", "maxcode.evaluator.worker", "--package", str(package), "--checks", checks]
    command += ["--source", str(run / "source"), "--oracle", str(run / "oracle"), "--out", str(out / "results.json")]
    done = subprocess.run(command, env={**os.environ, **ENVIRONMENT}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {check["name"]: check for check in json.loads((out / "results.json").read_text())["checks"]}


@pytest.fixture
def faulty(tiny_run, tmp_path):
    """A function that copies the package with one text replaced in one file."""

    def edit(file: str, old: str, new: str) -> Path:
        package = tmp_path / "package"
        shutil.copytree(tiny_run / "package", package)
        path = package / file
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))
        return package

    return edit


def test_a_right_package_passes(tiny_run, tmp_path):
    names = "exact,long,padding,cache,gradients,training,dtypes,weights,float32,bfloat16,bisect"
    found = run_checks(tiny_run, tiny_run / "package", names, tmp_path)
    assert {name: check["status"] for name, check in found.items()} == dict.fromkeys(names.split(","), "pass"), found
    assert found["exact"]["value"] < 1e-13
    assert "16 of 16 greedy tokens" in found["cache"]["detail"]
    assert "top-1" in found["float32"]["detail"]


def test_a_wrong_constant_fails_exact_and_is_located(tiny_run, faulty, tmp_path):
    package = faulty("tinylm/modeling.py", "self.eps = config.rms_norm_eps", "self.eps = config.rms_norm_eps * 1.001")
    found = run_checks(tiny_run, package, "exact,bisect", tmp_path)
    assert found["exact"]["status"] == "fail"
    assert 1e-10 < found["exact"]["value"] < 1e-4
    assert re.search(
        r"layers\.0\.input_layernorm \(TinyRMSNorm, modeling\.py:\d+; .*'output'", found["bisect"]["detail"]
    )


def test_a_fault_between_modules_is_located_in_their_caller(tiny_run, faulty, tmp_path):
    package = faulty(
        "tinylm/modeling.py", "jax.nn.silu(self.gate_proj(x)) *", "jax.nn.silu(self.gate_proj(x)) * 1.001 *"
    )
    detail = run_checks(tiny_run, package, "bisect", tmp_path)["bisect"]["detail"]
    assert re.search(r"down_proj .*its input differs already: look in model\.layers\.0\.mlp \(TinyMLP", detail), detail


def test_a_cache_fault_fails_cache_alone(tiny_run, faulty, tmp_path):
    package = faulty("tinylm/modeling.py", "cache.start + hidden_states.shape[1]", "cache.start + 1")
    found = run_checks(tiny_run, package, "exact,cache", tmp_path)
    assert [found[name]["status"] for name in ("exact", "cache")] == ["pass", "fail"]


@pytest.mark.slow
def test_a_lost_cast_fails_dtypes_alone(tiny_run, faulty, tmp_path):
    package = faulty("tinylm/modeling.py", "* hidden_states.astype(input_dtype)", "* hidden_states")
    found = run_checks(tiny_run, package, "exact,dtypes", tmp_path)
    assert [found[name]["status"] for name in ("exact", "dtypes")] == ["pass", "fail"]
    assert "input_layernorm" in found["dtypes"]["detail"]
    assert "float32, expected bfloat16" in found["dtypes"]["detail"]


def test_a_dropped_upcast_inside_a_module_fails_dtypes(tiny_run, faulty, tmp_path):
    package = faulty("tinylm/modeling.py", "hidden_states = hidden_states.astype(float32)\n", "pass\n")
    found = run_checks(tiny_run, package, "bfloat16,dtypes", tmp_path)
    assert [found[name]["status"] for name in ("bfloat16", "dtypes")] == ["pass", "fail"]
    assert "computes root in ['bfloat16'], expected ['float32']" in found["dtypes"]["detail"]


@pytest.mark.slow
def test_a_stopped_gradient_fails_gradients_and_training(tiny_run, faulty, tmp_path):
    package = faulty(
        "tinylm/modeling.py", "residual = hidden_states\n", "residual = jax.lax.stop_gradient(hidden_states)\n"
    )
    found = run_checks(tiny_run, package, "exact,gradients,training", tmp_path)
    assert [found[name]["status"] for name in ("exact", "gradients", "training")] == ["pass", "fail", "fail"]


def test_the_weight_ledger_is_two_sided(tiny_run, faulty, tmp_path):
    weight_map = json.loads((tiny_run / "weights.json").read_text())
    lost = weight_map["rows"].pop()
    package = faulty("weights.json", (tiny_run / "weights.json").read_text(), json.dumps(weight_map))
    detail = run_checks(tiny_run, package, "weights", tmp_path)["weights"]["detail"]
    assert f"source tensor {lost['source']} is not used" in detail
    assert "is filled by no row" in detail


@pytest.mark.slow
def test_wrong_bytes_are_named(tiny_run, faulty, tmp_path):
    package = faulty("tinylm/modeling.py", "value = stored[row", "value = (1 + 1e-6) * stored[row")
    found = run_checks(tiny_run, package, "weights", tmp_path)["weights"]
    assert found["status"] == "fail"
    assert "bytes differ" in found["detail"]


def test_the_packages_own_weights_are_compared_too(tiny_run, tmp_path):
    package = tmp_path / "package"
    shutil.copytree(tiny_run / "package", package)
    (package / "weights").mkdir()
    shutil.copy(tiny_run / "source" / "config.json", package)
    tensors = load_file(tiny_run / "source" / "model.safetensors")
    for change, status in ((0.0, "pass"), (1e-6, "fail")):
        name = next(name for name in sorted(tensors) if name.endswith("o_proj.weight"))
        tensors[name][0, 0] *= 1 + change
        save_file(tensors, package / "weights" / "model.safetensors")
        found = run_checks(tiny_run, package, "weights", tmp_path)["weights"]
        assert found["status"] == status, found
        assert ("in weights/ too" if status == "pass" else f"weights/: {name}") in found["detail"]


def test_an_exception_is_one_failed_check_with_its_line(tiny_run, faulty, tmp_path):
    package = faulty("tinylm/modeling.py", "causal = causal & attention_mask", "causal = causal & missing_name")
    found = run_checks(tiny_run, package, "exact,padding", tmp_path)
    assert [found[name]["status"] for name in ("exact", "padding")] == ["pass", "fail"]
    assert re.search(r"modeling\.py:\d+: NameError: name 'missing_name'", found["padding"]["detail"])


@pytest.mark.slow
def test_a_process_that_dies_costs_one_check(tiny_run, faulty, tmp_path):
    death = "causal = causal & __import__('os')._exit(9)"
    package = faulty(
        "tinylm/modeling.py",
        "causal = causal & attention_mask",
        f"{death} if attention_mask is not None else attention_mask",
    )
    found = run_checks(tiny_run, package, "padding,exact", tmp_path)
    assert [found[name]["status"] for name in ("padding", "exact")] == ["fail", "pass"]
    assert "status 9" in found["padding"]["detail"]


@pytest.mark.parametrize("name", ["long", "gradients"])
def test_what_was_not_recorded_is_not_run_and_what_does_not_apply_says_why(tiny_run, tmp_path, name):
    run = tmp_path / "run"
    shutil.copytree(tiny_run, run)
    index = json.loads((run / "oracle/index.json").read_text())
    index["scenarios"].remove(name)
    if name == "long":
        index["facts"]["reasons"]["long"] = "it is short"
    (run / "oracle/index.json").write_text(json.dumps(index))
    found = run_checks(run, run / "package", name, tmp_path)[name]
    expected = ("n/a", "it is short") if name == "long" else ("not_run", "the oracle recorded no 'gradients' scenario")
    assert found["status"] == expected[0]
    assert found["detail"].startswith(expected[1])


def test_standalone_blocks_the_source_framework(tiny_run, faulty, tmp_path):
    package = faulty("tinylm/config.py", "import json", "import json\nimport torch")
    found = run_checks(tiny_run, package, "standalone", tmp_path)
    assert found["standalone"]["status"] == "fail"
    assert "torch is blocked" in found["standalone"]["detail"]


@pytest.mark.slow
def test_standalone_compile_and_scan_pass(tiny_run, tmp_path):
    found = run_checks(tiny_run, tiny_run / "package", "standalone,compile,scan", tmp_path)
    assert {check["status"] for check in found.values()} == {"pass"}, found
    assert "8 devices" in found["scan"]["detail"]


@pytest.mark.slow
def test_a_prefill_per_length_fails_compile(tiny_run, faulty, tmp_path):
    package = faulty("tinylm/generate.py", "padded = next(b for b in BUCKETS if b >= length)", "padded = length")
    found = run_checks(tiny_run, package, "compile", tmp_path)["compile"]
    assert (found["status"], found["value"]) == ("fail", 100)


@pytest.mark.slow
def test_unsharded_weights_fail_scan(tiny_run, faulty, tmp_path):
    package = faulty("tinylm/modeling.py", "if mesh is not None:", "if mesh is None and False:")
    found = run_checks(tiny_run, package, "scan", tmp_path)["scan"]
    assert found["status"] == "fail"
    assert "0 of 15 leaves split" in found["detail"]
