"""The PyTorch model that `fixtures/tinylm` was written from, and a small oracle for it.

`record(folder)` writes recordings in the layout of docs/interfaces.md section 7, and the Hugging Face folder, so that
the evaluator's tests need neither the converter nor the real oracle process.
"""

import json
import math
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

CONFIG = {
    "vocab_size": 37, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 6, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
}  # fmt: skip
WIDE = {"float32": torch.float32}  # the lift sets it to float64


class TinyRMSNorm(nn.Module):
    def __init__(self, size, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(size)), eps

    def forward(self, x):
        dtype = x.dtype
        x = x.to(WIDE["float32"])
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * x.to(dtype)


def rotate_half(x):
    x1, x2 = x.chunk(2, -1)
    return torch.cat((-x2, x1), -1)


class TinyAttention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.head_dim, self.groups = c["head_dim"], c["num_attention_heads"] // c["num_key_value_heads"]
        width, kv = c["num_attention_heads"] * self.head_dim, c["num_key_value_heads"] * self.head_dim
        self.q_proj, self.k_proj = nn.Linear(c["hidden_size"], width), nn.Linear(c["hidden_size"], kv)
        self.v_proj, self.o_proj = nn.Linear(c["hidden_size"], kv), nn.Linear(width, c["hidden_size"], bias=False)

    def forward(self, x, cos, sin, mask):
        b, t, _ = x.shape
        q, k, v = (p(x).view(b, t, -1, self.head_dim).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        q, k = q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin
        k, v = k.repeat_interleave(self.groups, 1), v.repeat_interleave(self.groups, 1)
        weights = q @ k.transpose(2, 3) / math.sqrt(self.head_dim) + mask
        weights = F.softmax(weights.to(WIDE["float32"]), -1).to(q.dtype)
        return self.o_proj((weights @ v).transpose(1, 2).reshape(b, t, -1))


class TinyMLP(nn.Module):
    def __init__(self, c):
        super().__init__()
        hidden, mlp = c["hidden_size"], c["intermediate_size"]
        self.gate_proj, self.up_proj = nn.Linear(hidden, mlp, bias=False), nn.Linear(hidden, mlp, bias=False)
        self.down_proj = nn.Linear(mlp, hidden, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class TinyLayer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.self_attn, self.mlp = TinyAttention(c), TinyMLP(c)
        self.input_layernorm = TinyRMSNorm(c["hidden_size"], c["rms_norm_eps"])
        self.post_attention_layernorm = TinyRMSNorm(c["hidden_size"], c["rms_norm_eps"])

    def forward(self, x, cos, sin, mask):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, mask)
        return x + self.mlp(self.post_attention_layernorm(x))


class TinyModel(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.embed_tokens = nn.Embedding(c["vocab_size"], c["hidden_size"])
        self.layers = nn.ModuleList(TinyLayer(c) for _ in range(c["num_hidden_layers"]))
        self.norm = TinyRMSNorm(c["hidden_size"], c["rms_norm_eps"])

    def forward(self, x, attention_mask):
        t = x.shape[1]
        wide = WIDE["float32"]
        inv = 1.0 / (self.c["rope_theta"] ** (torch.arange(0, self.c["head_dim"], 2).to(wide) / self.c["head_dim"]))
        emb = torch.cat((freqs := torch.arange(t).to(wide)[:, None] * inv, freqs), -1)
        causal = torch.ones(t, t, dtype=torch.bool).tril()[None]
        if attention_mask is not None:
            causal = causal & attention_mask.bool()[:, None]
        mask = torch.zeros(causal.shape, dtype=x.dtype).masked_fill(~causal, torch.finfo(x.dtype).min)[:, None]
        for layer in self.layers:
            x = layer(x, emb.cos().to(x.dtype), emb.sin().to(x.dtype), mask)
        return self.norm(x)


class TinyForCausalLM(nn.Module):
    def __init__(self, c=None):
        super().__init__()
        c = c or CONFIG
        self.model = TinyModel(c)
        self.lm_head = nn.Linear(c["hidden_size"], c["vocab_size"], bias=False)

    def forward(self, input_ids=None, attention_mask=None, inputs_embeds=None):
        x = self.model.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        hidden = self.model(x, attention_mask)
        return {"logits": self.lm_head(hidden), "last_hidden_state": hidden}


def make(dtype=torch.float64):
    """The twin with seeded noise in every parameter; lifted when `dtype` is float64."""
    WIDE["float32"] = torch.float64 if dtype is torch.float64 else torch.float32
    generator = torch.Generator().manual_seed(0)
    model = TinyForCausalLM()
    for name, p in model.named_parameters():
        noise = torch.randn(p.shape, generator=generator)
        p.data = (1 + 0.2 * noise if name.endswith("norm.weight") else noise * (0.3 if p.ndim > 1 else 0.2)).float()
    return model.to(dtype)


def ids(seed, *shape):
    return torch.randint(0, CONFIG["vocab_size"], shape, generator=torch.Generator().manual_seed(seed))


class Writer:
    """One scenario's two files."""

    def __init__(self, folder, name, kind, dtype="float64"):
        self.folder, self.name, self.tensors, self.cases = Path(folder), name, {}, []
        self.about = {"format": 1, "name": name, "kind": kind, "dtype": dtype, "lifted": dtype == "float64"}

    def put(self, key, value):
        self.tensors[key] = value.detach().clone().contiguous()
        return key

    def named(self, prefix, values):
        return {name: self.put(f"{prefix}.{name}", value) for name, value in values.items()}

    def tree(self, prefix, values):
        return {name: {"$tensor": self.put(f"{prefix}.{name}", value)} for name, value in values.items()}

    def case(self, name, inputs, outputs=None, **facts):
        record = {"id": name, "inputs": self.tree(f"{name}/in", inputs), **facts}
        if outputs is not None:
            record["outputs"] = self.named(f"{name}/out", outputs)
        self.cases.append(record)
        return record

    def write(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        save_file(self.tensors, self.folder / f"{self.name}.safetensors")
        (self.folder / f"{self.name}.json").write_text(json.dumps(self.about | {"cases": self.cases}))


def record(folder: Path) -> None:
    """Write `folder/source`, `folder/oracle` and the weight map `folder/weights.json`."""
    write_source(folder)
    out = folder / "oracle"
    exact, inputs = make(), {"input_ids": ids(1, 2, 12)}
    with torch.no_grad():
        for name, cases in {
            "exact": {"seed0": inputs, "other": {"input_ids": ids(6, 3, 17)}},
            "long": {"seed0": {"input_ids": ids(2, 1, 520)}},
            "edges": {"one token": {"input_ids": ids(3, 2, 1)}, "last id": {"input_ids": torch.full((1, 9), 36)}},
        }.items():
            writer = Writer(out, name, "forward")
            for case, given in cases.items():
                writer.case(case, given, exact(**given), ties=False)
            writer.write()
        record_padding(out, exact)
        record_cache(out, exact)
        record_modules(out, exact, inputs)
        for dtype in ("float32", "bfloat16"):
            record_low(out, dtype)
    record_gradients(out, inputs)
    record_training(out, inputs)
    facts = {
        "logits": "logits",
        "vocab_size": 37,
        "cache": True,
        "sequence": ["input_ids"],
        "padding": True,
        "dropout": False,
    }
    facts |= {
        "batch_norm": False,
        "trainable": True,
        "embeds": "inputs_embeds",
        "max_positions": None,
        "token_limit": 37,
    }
    index = {"format": 1, "scenarios": sorted(p.stem for p in out.glob("*.json")), "facts": facts | {"reasons": {}}}
    (out / "index.json").write_text(json.dumps(index | {"versions": {}}))


def write_source(folder):
    model = make(torch.float32)
    (folder / "source").mkdir(parents=True, exist_ok=True)
    (folder / "source/config.json").write_text(json.dumps(CONFIG))
    state = {name: value.contiguous() for name, value in model.state_dict().items()}
    save_file(state, folder / "source/model.safetensors")
    rows = []
    for name, value in state.items():
        matrix = value.ndim == 2 and "embed" not in name
        leaf = "embedding" if "embed" in name else "kernel" if matrix else "bias" if name.endswith("bias") else "scale"
        target, layout = f"{name.rpartition('.')[0]}.{leaf}", "o i -> i o" if matrix else ""
        rows.append({"source": name, "target": target, "layout": layout, "shape": list(value.shape), "dtype": "F32"})
    weight_map = {"format": 1, "source": {}, "rows": rows, "tied": [], "waived": []}
    (folder / "weights.json").write_text(json.dumps(weight_map))


def record_padding(out, model):
    writer = Writer(out, "padding", "forward")
    for side in ("right", "left"):
        mask = torch.ones(2, 10, dtype=torch.int64)
        mask[1, slice(7, None) if side == "right" else slice(0, 3)] = 0
        inputs = {"input_ids": ids(3, 2, 10), "attention_mask": mask}
        outputs = model(**inputs)
        record = writer.case(side, inputs, outputs, counted=list(outputs))
        record["counts"] = writer.put(f"{side}/counts", mask.bool())
    writer.write()


def record_cache(out, model):
    prompt, rest = ids(4, 2, 6), ids(5, 2, 5)
    greedy = prompt
    for _ in range(8):
        greedy = torch.cat((greedy, model(greedy)["logits"][:, -1:].argmax(-1)), 1)
    writer = Writer(out, "cache", "decode")
    record = writer.case("seed0", {"input_ids": prompt}, model(torch.cat((prompt, rest), 1)), length=6, steps=5)
    record["step_inputs"] = writer.named("seed0/steps", {"input_ids": rest})
    record["greedy"] = writer.put("seed0/greedy", greedy[:, 6:])
    writer.write()


def hooked_calls(model, inputs):
    """Every module call in the order in which it ends."""
    calls = []

    def hook(name):
        def called(module, args, output):
            outputs = output if isinstance(output, dict) else {"output": output}
            given = {str(i): v.clone() for i, v in enumerate(args) if torch.is_tensor(v)}
            calls.append((name, type(module).__name__, given, {k: v.clone() for k, v in outputs.items()}))

        return called

    handles = [m.register_forward_hook(hook(n)) for n, m in model.named_modules()]
    model(**inputs)
    for handle in handles:
        handle.remove()
    return calls


FAMILIES = {torch.rsqrt: "root", F.softmax: "exp", F.silu: "exp", torch.Tensor.cos: "trigonometry"}


class Operations(TorchFunctionMode):
    """Result dtypes of roots and exponentials by the module that computes them."""

    def __init__(self, model):
        super().__init__()
        self.found, self.stack = {}, []
        for name, module in model.named_modules():
            module.register_forward_pre_hook(lambda m, args, name=name: self.stack.append(name))
            module.register_forward_hook(lambda m, args, output: self.stack.pop() and None)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if func in FAMILIES:
            families = self.found.setdefault(self.stack[-1], {})
            families.setdefault(FAMILIES[func], []).append(str(result.dtype)[6:])
        return result


def operations(inputs):
    model = make(torch.bfloat16)
    with Operations(model) as watched:
        model(**inputs)
    return {fqn: {f: sorted(set(ds)) for f, ds in families.items()} for fqn, families in watched.found.items()}


def record_modules(out, model, inputs):
    for name, dtype, calls in (
        ("modules", "float64", hooked_calls(model, inputs)),
        ("dtypes", "bfloat16", hooked_calls(make(torch.bfloat16), inputs)),
    ):
        writer, modules = Writer(out, name, "modules", dtype), []
        for number, (fqn, cls, given, outputs) in enumerate(calls):
            entry = {"fqn": fqn, "call": 0, "class": f"tiny.{cls}", "file": "tiny.py", "line": 1}
            if dtype == "float64":
                entry["inputs"] = writer.named(f"seed0/{number}/in", given)
                entry["outputs"] = writer.named(f"seed0/{number}", outputs)
            else:
                entry["dtypes"] = {k: str(v.dtype)[6:] for k, v in outputs.items()}
            modules.append(entry)
        record = writer.case("seed0", inputs, modules=modules)
        if name == "dtypes":
            record["operations"] = operations(inputs)
        writer.write()
    make()  # lift again


def record_low(out, dtype):
    writer = Writer(out, dtype, "forward", dtype)
    for seed in range(4):
        inputs = {"input_ids": ids(10 + seed, 2, 12)}
        truth = make()(**inputs)
        outputs = make(getattr(torch, dtype))(**inputs)
        record = writer.case(f"seed{seed}", inputs, outputs)
        record["truth"] = writer.named(f"seed{seed}/truth", truth)
    writer.write()


def loss_of(outputs, weights):
    return sum((outputs[name] * weight).mean() for name, weight in weights.items())


def loss_weights(outputs, seed):
    generator = torch.Generator().manual_seed(seed)
    return {n: torch.randn(v.shape, generator=generator, dtype=v.dtype) for n, v in outputs.items()}


def record_gradients(out, inputs):
    model = make()
    outputs = model(**inputs)
    weights = loss_weights(outputs, 7)
    loss = loss_of(outputs, weights)
    loss.backward()
    writer = Writer(out, "gradients", "gradients")
    record = writer.case("seed0", inputs, outputs)
    record["loss"] = writer.put("seed0/loss", loss)
    record["loss_weights"] = writer.named("seed0/loss_weights", weights)
    record["gradients"] = writer.named("seed0/grad", {n: p.grad for n, p in model.named_parameters()})
    writer.write()


def record_training(out, inputs, steps=20):
    model = make()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    settings = {"learning_rate": 1e-3, "b1": 0.9, "b2": 0.95, "eps": 1e-8, "weight_decay": 0.1}
    weights = loss_weights(model(**inputs), 8)
    writer, losses = Writer(out, "training", "training"), []
    batches = [{"input_ids": ids(100 + step, 2, 12)} for step in range(steps)]
    for batch in batches:
        loss = loss_of(model(**batch), weights)
        losses.append(loss.detach())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    record = writer.case("seed0", batches[0], optimizer=settings, dropout_off=True)
    record["batches"] = [writer.tree(f"seed0/batch{i}", batch) for i, batch in enumerate(batches)]
    record["loss_weights"] = writer.named("seed0/loss_weights", weights)
    record["losses"] = writer.put("seed0/losses", torch.stack(losses))
    record["buffers"] = {}
    writer.write()
