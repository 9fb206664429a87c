"""VGG-16 with BatchNorm for 32x32 images (Simonyan and Zisserman 2015, as the CIFAR repositories build it).

On CIFAR-10 (kuangliu/pytorch-cifar) one linear layer follows the 13 convolutions: 14,728,266 parameters. On CIFAR-100
(weiaicunzai/pytorch-cifar100) two hidden layers of 4096 with dropout come first: 34,015,396.
"""

from __future__ import annotations

from torch import Tensor, nn

LAYERS = (64, 64, "pool", 128, 128, "pool", 256, 256, 256, "pool", 512, 512, 512, "pool", 512, 512, 512, "pool")


class VGG16(nn.Module):
    """Images (batch, `channels`, 32, 32) or larger -> logits (batch, `classes`).

    `width` multiplies the channels of every convolution; `hidden` is the size of two hidden layers, None for none.
    """

    def __init__(self, classes: int = 10, width: float = 1.0, hidden: int | None = None, channels: int = 3) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for layer in LAYERS:
            if isinstance(layer, str):
                layers.append(nn.MaxPool2d(2))
            else:
                size = max(1, round(layer * width))
                layers += [nn.Conv2d(channels, size, 3, padding=1), nn.BatchNorm2d(size), nn.ReLU(inplace=True)]
                channels = size
        self.features = nn.Sequential(*layers)
        head: list[nn.Module] = []
        size = channels
        if hidden is not None:
            for _ in range(2):
                head += [nn.Linear(size, hidden), nn.ReLU(inplace=True), nn.Dropout()]
                size = hidden
        self.head = nn.Sequential(*head, nn.Linear(size, classes))

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(images).mean((2, 3)))
        return logits
