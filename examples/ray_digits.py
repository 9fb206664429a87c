"""Two workers on one machine find the schedule of a digit classifier: `python examples/ray_digits.py [FOLDER]`."""

import sys

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from autolrs import ray_


def make_task():
    """Called once in every worker: model, optimizer, loader, loss, validation loss."""
    digits = load_digits()
    images, labels = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loader = DataLoader(TensorDataset(images[:1400], labels[:1400]), batch_size=32, shuffle=True)

    def loss_fn(batch):
        return F.cross_entropy(model(batch[0]), batch[1])

    def evaluate():
        with torch.no_grad():
            return loss_fn((images[1400:], labels[1400:]))

    return model, optimizer, loader, loss_fn, evaluate


if __name__ == "__main__":
    folder = sys.argv[1] if len(sys.argv) > 1 else None
    result = ray_.fit(make_task, {"total_steps": 1000}, num_workers=2, run_dir=folder)
    print(f"peak LR {max(result.schedule.lrs()):.4g}, {result.state.raw_steps} steps in all")
    print(f"validation loss {result.task().evaluate():.4f}")
