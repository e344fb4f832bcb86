"""A hand-written emitted package and the checkpoint that it was converted from, for the weight tests.

The model has scanned and single layers, a transposed kernel, a bias, stored-as-is parameters of its own classes,
experts stacked from single tensors, a fused tensor that is split, tied weights, and a persistent buffer.
"""

import importlib
import itertools
import json
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

import maxcode.converter.support.axis_layout as support_module
from maxcode.checkpoint_convert.convert import convert_weights
from maxcode.checkpoint_convert.mapping import Leaf, build_map
from maxcode.checkpoint_convert.source_tensors import SourceTensors
from maxcode.converter.prune import prune
from maxcode.converter.support.tensor_files import TensorFolder, TensorSpec

SUPPORT = Path(support_module.__file__).parent
CONFIG = {"vocab_size": 11, "hidden_size": 6, "width": 8, "experts": 3, "layers": 4}

CONFIG_SOURCE = """
from .config_base import Config, config_class


@config_class
class ToyConfig(Config):
    vocab_size: int = 11
    hidden_size: int = 6
    width: int = 8
    experts: int = 3
    layers: int = 4
"""

MODELING_SOURCE = """
import jax
import jax.numpy as jnp

from .layers import Embedding, Linear, PreTrainedModel
from .module import Buffer, Module, normal, param
from .stack import LayerStack


class ToyNorm(Module):
    def __init__(self, size, *, config, rngs):
        self.weight = param(jnp.ones(size), ("norm",), config)

    def __call__(self, x):
        return self.weight[...] * x


class ToyExperts(Module):
    def __init__(self, config, *, rngs):
        e, w, d = config.experts, config.width, config.hidden_size
        self.gate_up_proj = param(normal((e, 2 * w, d)), ("exp", "mlp", "embed"), config, rngs=rngs)
        self.down_proj = param(normal((e, d, w)), ("exp", "embed", "mlp"), config, rngs=rngs)

    def __call__(self, x):
        gate, up = jnp.split(jnp.einsum("bd,ewd->ebw", x, self.gate_up_proj[...]), 2, axis=-1)
        return jnp.einsum("ebw,edw->bd", jax.nn.silu(gate) * up, self.down_proj[...])


class ToyLayer(Module):
    def __init__(self, config, layer_idx, *, rngs):
        d = config.hidden_size
        self.layer_idx = layer_idx
        self.norm = ToyNorm(d, config=config, rngs=rngs)
        self.q_proj = Linear(d, d, axes=("embed", "q_heads"), config=config, rngs=rngs)
        self.k_proj = Linear(d, d // 2, axes=("embed", "kv_heads"), config=config, rngs=rngs)
        if layer_idx % 4 != 0:
            self.experts = ToyExperts(config, rngs=rngs)
        else:
            self.dense = Linear(d, d, bias=False, axes=("embed", "mlp"), config=config, rngs=rngs)
        self.steps = Buffer(jnp.zeros((), jnp.int32))

    def __call__(self, x):
        h = self.norm(x)
        x = x + self.q_proj(h) + jnp.tile(self.k_proj(h), 2)
        return x + (self.dense(x) if hasattr(self, "dense") else self.experts(x))


class ToyModel(PreTrainedModel):
    def __init__(self, config, *, rngs):
        self.config = config
        v, d = config.vocab_size, config.hidden_size
        self.embed = Embedding(v, d, axes=("vocab", "embed"), config=config, rngs=rngs)
        self.layers = LayerStack(
            lambda i, *, rngs: ToyLayer(config, i, rngs=rngs), config.layers, config=config, rngs=rngs
        )
        self.scale = param(jnp.ones(()), (), config)

    def __call__(self, ids):
        x = self.layers.run(lambda i, layer, x: layer(x), self.embed(ids))
        return self.scale[...] * x @ self.embed.embedding[...].T
"""


def write_package(root: Path, name: str):
    """Write the package below `root` and import it."""
    package = root / name
    package.mkdir(parents=True)
    files = {"config.py": CONFIG_SOURCE, "modeling.py": MODELING_SOURCE}
    library = {path.stem: path.read_text() for path in SUPPORT.glob("*.py")}
    for file, text in (prune(library, files, {"pretrained": None, "sharding": None}) | files).items():
        (package / file).write_text(text)
    (package / "__init__.py").write_text(
        "from .config import ToyConfig as Config\nfrom .modeling import ToyModel as Model\n"
    )
    (root / "config.json").write_text(json.dumps(CONFIG))
    sys.path.insert(0, str(root))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(root))


def state_dict(seed: int = 0, layers: int = 4) -> dict[str, np.ndarray]:
    """The tensors of the source model, as its state dict has them; bfloat16 except the integer counters."""
    rng = np.random.default_rng(seed)
    d, w, e, v = (CONFIG[k] for k in ("hidden_size", "width", "experts", "vocab_size"))

    def draw(*shape):
        return rng.standard_normal(shape).astype(ml_dtypes.bfloat16)

    state = {"embed.weight": draw(v, d), "scale": draw()}
    for i in range(layers):
        p = f"layers.{i}."
        state |= {f"{p}norm.weight": draw(d), f"{p}q_proj.weight": draw(d, d), f"{p}q_proj.bias": draw(d)}
        state |= {f"{p}k_proj.weight": draw(d // 2, d), f"{p}k_proj.bias": draw(d // 2)}
        if i % 4 != 0:
            state |= {f"{p}experts.gate_up_proj": draw(e, 2 * w, d), f"{p}experts.down_proj": draw(e, d, w)}
        else:
            state[f"{p}dense.weight"] = draw(d, d)
        state[f"{p}steps"] = np.array(rng.integers(0, 1000), np.int64)
    return state


def checkpoint(state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The same tensors as the checkpoint's files hold them: experts one by one, q and k fused."""
    files = {}
    for name, array in state.items():
        head, _, leaf = name.rpartition(".")
        if leaf == "gate_up_proj":
            for e, (gate, up) in enumerate(np.split(expert, 2) for expert in array):
                files |= {f"{head}.{e}.gate.weight": gate, f"{head}.{e}.up.weight": up}
        elif leaf == "down_proj":
            files |= {f"{head}.{e}.down.weight": expert for e, expert in enumerate(array)}
        elif "q_proj" in name:
            files[name.replace("q_proj", "qk_proj")] = np.concatenate([array, state[name.replace("q_proj", "k_proj")]])
        elif "k_proj" not in name:
            files[name] = array
    return {name: np.array(array, order="C") for name, array in files.items()}


def conversions(state: dict[str, np.ndarray]) -> list[dict]:
    """`conversions` of tensors.json: how the state dict's tensors are made of the files'."""
    found = []
    for name in state:
        head, _, leaf = name.rpartition(".")
        merge = ["MergeModulelist", {"dim": 0}]
        if leaf == "gate_up_proj":
            sources = [[f"{head}.{i}.{part}.weight" for i in range(CONFIG["experts"])] for part in ("gate", "up")]
            found.append({"targets": [name], "sources": sources, "operations": [merge, ["Concatenate", {"dim": 1}]]})
        elif leaf == "down_proj":
            sources = [[f"{head}.{i}.down.weight" for i in range(CONFIG["experts"])]]
            found.append({"targets": [name], "sources": sources, "operations": [merge]})
        elif "q_proj" in name:
            targets = [name, name.replace("q_proj", "k_proj")]
            sources = [[name.replace("q_proj", "qk_proj")]]
            found.append({"targets": targets, "sources": sources, "operations": [["Split", {"dim": 0}]]})
    return found


def tensors_json(state: dict[str, np.ndarray], *, fused: bool) -> dict:
    """What the oracle process would say about the source model."""
    classes = {"embed": "torch.nn.modules.sparse.Embedding", "_proj": "torch.nn.modules.linear.Linear"}
    classes["dense"] = "torch.nn.modules.linear.Linear"

    def owner(name):
        return next((cls for part, cls in classes.items() if part in name.rpartition(".")[0]), "toy.ToyModule")

    tensors = {
        name: {
            "shape": list(array.shape),
            "dtype": array.dtype.name,
            "tied_to": None,
            "module_class": owner(name),
        }
        for name, array in state.items()
    }
    tensors["head.weight"] = tensors["embed.weight"] | {
        "tied_to": "embed.weight",
        "module_class": "torch.nn.modules.linear.Linear",
    }
    return {
        "tensors": tensors,
        "non_persistent": ["rotary.inv_freq"],
        "ignored": [r"^mtp\."],
        "conversions": conversions(state) if fused else [],
    }


RULES = {
    "torch.nn.modules.linear.Linear": {"weight": ("kernel", "o i -> i o"), "bias": ("bias", "o -> o")},
    "torch.nn.modules.sparse.Embedding": {"weight": ("embedding", "v e -> v e")},
}


def write_source(folder: Path, tensors: dict[str, np.ndarray]) -> Path:
    """A Hugging Face folder with one safetensors file."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "tokenizer.json").write_text("{}")
    return folder


NAMES = itertools.count()


def stored_specs(folder):
    return {name: TensorSpec(entry.dtype, entry.shape) for name, entry in TensorFolder(folder).entries.items()}


class Case:
    """One converted toy: source folder, package root, the imported package, weight map."""

    def __init__(self, root, fused):
        self.state, self.fused = state_dict(), fused
        self.tensors = checkpoint(self.state) if fused else dict(self.state)
        self.tensors["rotary.inv_freq"] = np.arange(3, dtype=np.float32)  # stored by older versions, not loaded
        self.source = write_source(root / "source", self.tensors)
        self.root = root / "out"
        self.package = write_package(self.root, f"toy_package_{next(NAMES)}")
        model = self.package.Model.abstract(self.package.Config.from_json(self.root / "config.json"))
        leaves = [Leaf.from_json(leaf.to_json()) for leaf in self.leaves(model).values()]
        self.about = SourceTensors.from_json(tensors_json(self.state, fused=fused))
        self.map = build_map(self.about, RULES.get, leaves, stored_specs(self.source))
        self.map, self.report = convert_weights(self.source, self.map, self.root, max_shard_bytes=2000)
        (self.root / "tokenizer.json").write_text("{}")

    def leaves(self, model):
        return self.support.leaves(model)

    @property
    def support(self):
        return importlib.import_module(f"{self.package.__name__}.pretrained")

    def expected(self):
        """Leaf name -> array, straight from the state dict."""
        out = {}
        for name, array in self.state.items():
            if name == "embed.weight":
                out["embed.embedding"] = array
            elif name.endswith(("_proj.weight", "dense.weight")):
                out[name.replace(".weight", ".kernel")] = array.T
            else:
                out[name] = array
        return out


def check_model(case, model, dtype=np.float32):
    found = case.leaves(model)
    expected = case.expected()
    assert found.keys() == expected.keys()
    for name, leaf in found.items():
        want = expected[name].astype(dtype if expected[name].dtype != np.int64 else np.int32)
        assert leaf.dtype == want.dtype, name
        np.testing.assert_array_equal(leaf.read(), want, err_msg=name)
