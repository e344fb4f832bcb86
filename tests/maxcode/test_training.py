"""Training programs end to end: converted, and their steps compared with PyTorch's own run of the same program."""

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
            torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=0.5)
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


@pytest.mark.slow
def test_a_plain_loop_takes_pytorchs_steps(tmp_path):
    check, text = loop_check(tmp_path, MODEL + FUNCTION)
    assert check.status == "pass", check.detail
    assert check.value < 1e-12
    assert "20 optimizer steps" in check.detail
    assert "jax.value_and_grad" in text
    assert "clip_grad_norm(gradients, max_norm=0.5)" in text
