"""GPT-2 from scratch on real text with the Hugging Face Trainer; two lines differ from a script without autolrs.

The text is the descriptions that scikit-learn's data sets come with, read byte by byte.
"""

from __future__ import annotations

import sys
import tempfile
from importlib.resources import files

import torch
from transformers import GPT2Config, GPT2LMHeadModel, TrainingArguments

from autolrs.hf_ import AutoLRSTrainer  # 1: instead of transformers.Trainer

LENGTH = 32


class Bytes(torch.utils.data.Dataset):
    """Pieces of a text; a token is a byte."""

    def __init__(self, text: bytes) -> None:
        self.tokens = torch.tensor(list(text), dtype=torch.long)

    def __len__(self) -> int:
        return len(self.tokens) // LENGTH

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        piece = self.tokens[index * LENGTH : (index + 1) * LENGTH]
        return {"input_ids": piece, "labels": piece}


def main(max_steps: int = 600, output_dir: str | None = None, **options: object) -> AutoLRSTrainer:
    pages = sorted(files("sklearn.datasets.descr").iterdir(), key=lambda page: page.name)
    text = b"\n".join(page.read_bytes() for page in pages if page.name.endswith(".rst"))
    cut = len(text) * 9 // 10
    torch.manual_seed(0)
    sizes = {"n_positions": LENGTH, "n_embd": 32, "n_layer": 2, "n_head": 2}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=256, bos_token_id=0, eos_token_id=0, **sizes))
    trainer = AutoLRSTrainer(
        model=model,
        args=TrainingArguments(
            output_dir or tempfile.mkdtemp(),
            max_steps=max_steps,
            per_device_train_batch_size=16,
            dataloader_pin_memory=torch.cuda.is_available(),
            report_to="none",
            **{"logging_steps": max(1, max_steps // 12), **options},
        ),
        train_dataset=Bytes(text[:cut]),
        eval_dataset=Bytes(text[cut:]),
        autolrs={"strategy": "horizon"},  # 2: any keyword of autolrs.AutoLRS
    )
    trainer.train()
    return trainer


if __name__ == "__main__":
    print(main(*map(int, sys.argv[1:])).auto.schedule.segments)
