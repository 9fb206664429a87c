"""BERT from scratch, masked language modelling on real text, with Algorithm 1 of the paper instead of the default.

The text is the descriptions that scikit-learn's data sets come with, read byte by byte.
"""

from __future__ import annotations

import sys
import tempfile
from importlib.resources import files

import torch
from transformers import BertConfig, BertForMaskedLM, TrainingArguments

from autolrs.hf_ import AutoLRSTrainer

LENGTH, MASK, IGNORED = 32, 256, -100  # a token is a byte, or the mask


def collate(pieces: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    """A seventh of the bytes is hidden and to be guessed."""
    tokens = torch.stack(pieces)
    hidden = torch.rand(tokens.shape) < 1 / 7
    return {"input_ids": tokens.masked_fill(hidden, MASK), "labels": tokens.masked_fill(~hidden, IGNORED)}


def main(max_steps: int = 600, output_dir: str | None = None, **options: object) -> AutoLRSTrainer:
    pages = sorted(files("sklearn.datasets.descr").iterdir(), key=lambda page: page.name)
    text = b"\n".join(page.read_bytes() for page in pages if page.name.endswith(".rst"))
    tokens = torch.tensor(list(text), dtype=torch.long)
    pieces = list(tokens[: len(tokens) // LENGTH * LENGTH].reshape(-1, LENGTH))
    cut = len(pieces) * 9 // 10
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=257, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64
    )
    trainer = AutoLRSTrainer(
        model=BertForMaskedLM(config),
        args=TrainingArguments(
            output_dir or tempfile.mkdtemp(),
            max_steps=max_steps,
            per_device_train_batch_size=16,
            dataloader_pin_memory=torch.cuda.is_available(),
            report_to="none",
            **{"logging_steps": max(1, max_steps // 12), **options},
        ),
        train_dataset=pieces[:cut],
        eval_dataset=pieces[cut:],
        data_collator=collate,
        autolrs={"strategy": "paper", "lr": (1e-4, 1e-1), "stage_steps": 50, "max_stage_steps": 200, "n_probes": 5},
    )
    trainer.train()
    return trainer


if __name__ == "__main__":
    print(main(*map(int, sys.argv[1:])).auto.schedule.segments)
