"""Digits with Accelerate, in one process or several: `accelerate launch --cpu --num_processes 2 <this file>`."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import GradientAccumulationPlugin
from sklearn.datasets import load_digits
from torch import nn

import autolrs


def main(total_steps: int = 400, folder: str | None = None, stop_at: int | None = None) -> autolrs.AutoLRS:
    """Train; `folder` keeps a checkpoint, from which the next call goes on; `stop_at` breaks off after some steps."""
    plugin = GradientAccumulationPlugin(num_steps=2, sync_with_dataloader=False)
    accelerator = Accelerator(gradient_accumulation_plugin=plugin, cpu=not torch.cuda.is_available())
    torch.manual_seed(0)
    digits = load_digits()
    data = torch.utils.data.TensorDataset(torch.tensor(digits.data / 16.0).float(), torch.tensor(digits.target))
    loader = torch.utils.data.DataLoader(data, batch_size=32, shuffle=True)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 10))
    optimizer = torch.optim.AdamW(model.parameters())
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    auto = autolrs.AutoLRS(model, optimizer, total_steps=total_steps)  # 1: instead of a scheduler, not prepared
    accelerator.register_for_checkpointing(auto)  # 2: it is saved and loaded with the rest
    if folder is not None and Path(folder).exists():
        accelerator.load_state(folder)

    losses = []
    for features, target in auto.batches(loader):  # 3: instead of the epoch loop
        with accelerator.accumulate(model):
            loss = nn.functional.cross_entropy(model(features), target)
            accelerator.backward(loss)
            losses.append(loss.detach())
            optimizer.step()
            optimizer.zero_grad()
        if accelerator.sync_gradients:  # 4: a step is an optimizer step, with the mean loss of its batches
            auto.step(torch.stack(losses).mean())
            losses = []
            if stop_at is not None and auto.raw_steps == stop_at:
                break
    if folder is not None:
        accelerator.save_state(folder)
    accelerator.print(f"{auto.committed_steps} steps, {auto.raw_steps} with probes; loss {loss.item():.3f}")
    return auto


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
