"""Digits on several processes, restartable: torchrun --nproc-per-node 2 --max-restarts 3 examples/ddp_digits.py

The three lines of a single process are unchanged. Kill a rank, or run it again after a crash: it goes on.
"""

import argparse

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import autolrs

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=1000)
parser.add_argument("--run-dir", default="runs/ddp-digits")
args = parser.parse_args()

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.set_num_threads(1)
torch.manual_seed(0)

digits = load_digits()
x = torch.tensor(digits.data / 16, dtype=torch.float32)
y = torch.tensor(digits.target)
train, held_out = TensorDataset(x[:1500], y[:1500]), (x[1500:], y[1500:])
loader = DataLoader(train, batch_size=32, sampler=DistributedSampler(train))

model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)))
optimizer = torch.optim.Adam(model.parameters())

# On the first start a new run, on a restart the one in the folder.
auto = autolrs.resume(args.run_dir, model, optimizer, missing_ok=True, total_steps=args.steps)
if rank == 0 and auto.raw_steps:
    print(f"going on after {auto.committed_steps} steps")

for features, target in auto.batches(loader):  # tells the sampler its epochs, replays this rank's shard for probes
    loss = nn.functional.cross_entropy(model(features), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    auto.step(loss)

if rank == 0:
    with torch.no_grad():
        right = (model.module(held_out[0]).argmax(1) == held_out[1]).float().mean()
    peak = max(segment.lr_start for segment in auto.schedule.segments)
    print(f"{dist.get_world_size()} ranks, {auto.committed_steps} steps, peak LR {peak:.4g}, accuracy {right:.3f}")
dist.barrier()  # nobody leaves while rank 0 is still at work
dist.destroy_process_group()
