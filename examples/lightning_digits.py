"""A Lightning training of the digits whose learning rate nobody chose: one callback, and no scheduler."""

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset, random_split

from autolrs.lightning_ import AutoLRSCallback


class Digits(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 10))

    def training_step(self, batch, batch_idx):
        loss = F.cross_entropy(self.net(batch[0]), batch[1])
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        logits = self.net(batch[0])
        self.log("val_loss", F.cross_entropy(logits, batch[1]))
        self.log("val_accuracy", (logits.argmax(1) == batch[1]).float().mean())

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())  # no scheduler: its LR is found


def main():
    lightning.seed_everything(0)
    pixels, labels = load_digits(return_X_y=True)
    data = TensorDataset(torch.tensor(pixels, dtype=torch.float32) / 16, torch.tensor(labels))
    train, val = random_split(data, [0.8, 0.2])
    finder = AutoLRSCallback(total_steps=300, run_dir="runs/lightning-digits")
    trainer = lightning.Trainer(
        accelerator="cpu",
        callbacks=[finder, ModelCheckpoint("runs/lightning-digits", monitor="val_loss")],
        gradient_clip_val=1.0,
        logger=False,
        max_epochs=-1,
        enable_progress_bar=False,
    )
    trainer.fit(Digits(), DataLoader(train, batch_size=32, shuffle=True), DataLoader(val, batch_size=128))
    peak = max(segment.lr_start for segment in finder.schedule.segments)
    print(f"peak LR {peak:.4g}, accuracy {trainer.callback_metrics['val_accuracy']:.3f}")
    finder.schedule.save("runs/lightning-digits/found.json")  # to train again without a search: `Schedule.to_torch`


if __name__ == "__main__":
    main()
