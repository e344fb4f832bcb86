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

    def __init__(self, folder, scenario, dtype="float64", **about):
        self.folder, self.stem = Path(folder), f"{scenario}.{dtype}"
        self.about = {"format": 1, "scenario": scenario, "dtype": dtype, "applies": True, "cases": {}, **about}
        self.tensors = {}

    def case(self, inputs, outputs, name="", sections=None, **record):
        sketch = {k: {"shape": list(v.shape), "dtype": str(v.dtype)[6:]} for k, v in inputs.items()}
        self.about["cases"][name] = {"constants": {}, "inputs": sketch, **record}
        for section, values in {"in": inputs, "out": outputs, **(sections or {})}.items():
            for key, value in values.items():
                self.tensors[f"{name}/{section}.{key}" if name else f"{section}.{key}"] = (
                    value.detach().clone().contiguous()
                )
        return self

    def write(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        save_file(self.tensors, self.folder / f"{self.stem}.safetensors")
        (self.folder / f"{self.stem}.json").write_text(json.dumps(self.about))


def record(folder: Path) -> None:
    """Write `folder/source`, `folder/oracle` and the weight map `folder/weights.json`."""
    write_source(folder)
    out = folder / "oracle"
    exact, inputs = make(), {"input_ids": ids(1, 2, 12)}
    with torch.no_grad():
        Writer(out, "forward").case(inputs, exact(**inputs)).write()
        long = {"input_ids": ids(2, 1, 520)}
        Writer(out, "long").case(long, exact(**long)).write()
        record_padding(out, exact)
        record_cache(out, exact)
        record_modules(out, exact, inputs)
        for dtype in ("float32", "bfloat16"):
            record_low(out, dtype, inputs)
    record_gradients(out, inputs)
    record_training(out, inputs)


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
    writer = Writer(out, "padding")
    for side in ("right", "left"):
        mask = torch.ones(2, 10, dtype=torch.int64)
        mask[1, slice(7, None) if side == "right" else slice(0, 3)] = 0
        inputs = {"input_ids": ids(3, 2, 10), "attention_mask": mask}
        writer.case(inputs, model(**inputs), side, {"count": {"mask": mask.bool()}})
    writer.write()


def record_cache(out, model):
    prompt, rest = ids(4, 2, 6), ids(5, 2, 5)
    greedy = prompt
    for _ in range(8):
        greedy = torch.cat((greedy, model(greedy)["logits"][:, -1:].argmax(-1)), 1)
    outputs = model(torch.cat((prompt, rest), 1))
    sections = {"step": {"input_ids": rest}, "greedy": {"tokens": greedy[:, 6:]}}
    Writer(out, "cache").case({"input_ids": prompt}, outputs, "", sections).write()


def record_modules(out, model, inputs):
    calls = []

    def hook(name):
        return lambda module, args, output: calls.append((name, module, output))

    handles = [m.register_forward_hook(hook(n)) for n, m in model.named_modules()]
    model(**inputs)
    flat = [(n, m, o if isinstance(o, dict) else {"output": o}) for n, m, o in calls]
    record_calls(out, "float64", flat, inputs)
    for handle in handles:
        handle.remove()
    low = make(torch.bfloat16)
    calls.clear()
    handles = [m.register_forward_hook(hook(n)) for n, m in low.named_modules()]
    low(**inputs)
    record_calls(out, "bfloat16", [(n, m, o if isinstance(o, dict) else {"output": o}) for n, m, o in calls], inputs)


def record_calls(out, dtype, calls, inputs):
    modules, sections = [], {"module": {}}
    for number, (name, module, outputs) in enumerate(calls):
        entry = {"fqn": name, "class": type(module).__name__, "file": "tiny.py", "line": 1, "outputs": list(outputs)}
        entry["dtypes"] = {k: str(v.dtype)[6:] for k, v in outputs.items()}
        modules.append(entry)
        if dtype == "float64":
            sections["module"] |= {f"{number}.{k}": v for k, v in outputs.items()}
    Writer(out, "modules", dtype).case(inputs, {}, "", sections, modules=modules).write()


def record_low(out, dtype, inputs):
    low, worst = make(getattr(torch, dtype)), {}
    for seed in range(4):
        batch = inputs if seed == 0 else {"input_ids": ids(10 + seed, 2, 12)}
        WIDE["float32"] = torch.float32
        rounded = low(**batch)
        exact = make()(**batch)
        for name, value in exact.items():
            error = float((rounded[name].double() - value).abs().max() / value.abs().max())
            worst[name] = max(worst.get(name, 0.0), error)
    WIDE["float32"] = torch.float32
    own = {"worst": worst, "seeds": 4, "flips": 0, "choices": 0}
    Writer(out, "forward", dtype, own_error=own).case(inputs, low(**inputs)).write()


def loss_of(outputs, weights):
    return sum((outputs[name] * weight).mean() for name, weight in weights.items())


def record_gradients(out, inputs):
    model = make()
    outputs = model(**inputs)
    generator = torch.Generator().manual_seed(7)
    weights = {n: torch.randn(v.shape, generator=generator, dtype=v.dtype) for n, v in outputs.items()}
    loss = loss_of(outputs, weights)
    loss.backward()
    grads = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    sections = {"weight": weights, "loss": {"value": loss}, "grad": grads}
    parameters = [n for n, _ in model.named_parameters()]
    Writer(out, "gradients").case(inputs, {}, "", sections, parameters=parameters).write()


def record_training(out, inputs, steps=20):
    model = make()
    settings = {"lr": 1e-3, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}
    optimizer = torch.optim.AdamW(model.parameters(), **settings)
    generator = torch.Generator().manual_seed(8)
    weights = {n: torch.randn(v.shape, generator=generator, dtype=v.dtype) for n, v in model(**inputs).items()}
    batches, losses = {}, []
    for step in range(steps):
        batch = {"input_ids": ids(100 + step, 2, 12)}
        batches[f"{step}.input_ids"] = batch["input_ids"]
        loss = loss_of(model(**batch), weights)
        losses.append(loss.detach())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    sections = {"batch": batches, "weight": weights, "losses": {"value": torch.stack(losses)}}
    Writer(out, "training").case(inputs, {}, "", sections, optimizer=settings).write()
