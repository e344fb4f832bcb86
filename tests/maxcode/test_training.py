"""Training programs end to end: converted, and their steps compared with PyTorch's own run of the same program."""

import shutil
import textwrap

import pytest

from maxcode import stages, targets
from maxcode.progress import Progress
from maxcode.stages import ConvertOptions, GateOptions, Run

MODEL = """
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset

class Net(nn.Module):
    def __init__(self, dim, hidden, classes):
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden)
        self.drop = nn.Dropout(0.1)
        self.fc2 = nn.Linear(hidden, classes)

    def forward(self, x):
        return self.fc2(self.drop(F.gelu(self.fc1(x))))
"""

FUNCTION = """
def train(model, loader, optimizer, scheduler, device, epochs=2):
    criterion = nn.CrossEntropyLoss()
    model.train()
    for epoch in range(epochs):
        total = 0.0
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=0.05)
            optimizer.step()
            scheduler.step()
            total += loss.item()
        print(f"epoch {epoch}: {total / len(loader):.4f}")

def main():
    torch.manual_seed(0)
    x, y = torch.randn(176, 6), torch.randint(0, 3, (176,))
    loader = DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True)
    model = Net(6, 12, 3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.05)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=2 * len(loader))
    train(model, loader, optimizer, scheduler, torch.device("cpu"))

if __name__ == "__main__":
    main()
"""


def converted(tmp_path, source):
    """The run folder and conversion of a program."""
    (tmp_path / "train.py").write_text(textwrap.dedent(source))
    run, progress = Run(tmp_path / "run"), Progress(quiet=True)
    target = stages.locate(targets.parse_target(str(tmp_path / "train.py")), progress, with_weights=True)
    stages.resolve(target, run, progress)
    stages.materialise(run, progress)
    stages.probe(run, progress)
    return run, stages.convert_source(run, ConvertOptions("net"), progress), progress


def loop_check(tmp_path, source):
    """The check of a program's steps, and the text of its training.py."""
    run, conversion, progress = converted(tmp_path, source)
    assert conversion.gaps == []
    stages.convert_weights(run, ConvertOptions("net"), progress)
    verdict = stages.gate(run, run.package, GateOptions(checks=("loop",)), progress)
    return verdict.checks[0], conversion.files["training.py"]


def check_again(run, progress, old, new):
    """The check after a change of the converted program."""
    path = run.package / "net" / "training.py"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    shutil.rmtree(run.root / "checks")
    found = stages.gate(run, run.package, GateOptions(checks=("loop",)), progress).checks[0]
    path.write_text(text)
    return found


@pytest.mark.slow
def test_a_plain_loop_takes_pytorchs_steps_and_faults_are_caught(tmp_path):
    run, conversion, progress = converted(tmp_path, MODEL + FUNCTION)
    assert conversion.gaps == []
    stages.convert_weights(run, ConvertOptions("net"), progress)
    check = stages.gate(run, run.package, GateOptions(checks=("loop",)), progress).checks[0]
    assert check.status == "pass", check.detail
    assert check.value < 1e-12
    assert "20 optimizer steps" in check.detail
    assert "jax.value_and_grad" in conversion.files["training.py"]
    for old, new in [
        ("max_norm=0.05", "max_norm=50.0"),
        ("weight_decay=0.05", "weight_decay=0.06"),
        ("T_max=2 * len(loader)", "T_max=3 * len(loader)"),
        ("            scheduler.step()\n", ""),
    ]:
        assert check_again(run, progress, old, new).status == "fail", (old, new)


ACCUMULATING = """
class Trainer:
    def __init__(self, model, loader, optimizer, accumulation):
        self.model, self.loader, self.optimizer = model, loader, optimizer
        self.accumulation = accumulation
        self.criterion = nn.CrossEntropyLoss()
        self.average = torch.optim.swa_utils.AveragedModel(
            model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
        )

    def epoch(self):
        self.model.train()
        self.optimizer.zero_grad()
        total = 0.0
        for i, batch in enumerate(self.loader):
            x, y = batch
            with torch.autocast("cpu", dtype=torch.bfloat16):
                logits = self.model(x)
                loss = self.criterion(logits, y)
            (loss / self.accumulation).backward()
            if (i + 1) % self.accumulation == 0:
                self.optimizer.step()
                self.optimizer.zero_grad()
                self.average.update_parameters(self.model)
            total += loss.item()
            hits = (logits.argmax(-1) == y).sum().item()
        return total, hits

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        return sum(self.criterion(self.average(x), y).item() for x, y in self.loader)


if __name__ == "__main__":
    torch.manual_seed(0)
    model = Net(6, 12, 3)
    for parameter in model.fc1.parameters():
        parameter.requires_grad = False
    groups = [{"params": [p for n, p in model.named_parameters() if n.endswith("weight")], "weight_decay": 0.1},
              {"params": [p for n, p in model.named_parameters() if n.endswith("bias")], "lr": 0.05}]
    optimizer = torch.optim.RAdam(groups, lr=1e-2)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.5)
    data = TensorDataset(torch.randn(96, 6), torch.randint(0, 3, (96,)))
    trainer = Trainer(model, DataLoader(data, batch_size=8, shuffle=True), optimizer, 2)
    for epoch in range(5):
        total, hits = trainer.epoch()
        scheduler.step(trainer.evaluate())
        print(epoch, total, hits)
"""


@pytest.mark.slow
def test_a_class_that_accumulates_freezes_and_averages(tmp_path):
    check, text = loop_check(tmp_path, MODEL + ACCUMULATING)
    assert check.status == "pass", check.detail
    assert "40 of 40 losses" in check.detail
    assert "state.accumulated(gradients)" in text
    assert "requires_grad = False" in text


TWO_MODELS = """
first, second = Net(6, 8, 3), Net(6, 8, 3)
a = torch.optim.SGD(first.parameters(), lr=0.1)
b = torch.optim.SGD(second.parameters(), lr=0.1)
for step in range(4):
    x = torch.randn(4, 6)
    a.zero_grad()
    first(x).sum().backward()
    a.step()
    b.zero_grad()
    second(x).sum().backward()
    b.step()
"""


@pytest.mark.slow
def test_a_loop_that_is_not_understood_is_a_gap_with_its_line(tmp_path):
    _, conversion, _ = converted(tmp_path, MODEL + TWO_MODELS)
    gap = next(g for g in conversion.gaps if g.code == "CV120" and "second backward()" in g.reason)
    assert gap.file.endswith("train.py")
    assert (tmp_path / "train.py").read_text().splitlines()[gap.line - 1].strip() == "second(x).sum().backward()"
