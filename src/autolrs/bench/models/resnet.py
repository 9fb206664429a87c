"""ResNet-50 (He et al. 2016): 25,557,032 parameters with ImageNet's stem and 1000 classes, 23,520,842 for CIFAR-10."""

from __future__ import annotations

from torch import Tensor, nn

DEPTHS = (3, 4, 6, 3)  # bottlenecks a stage


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1 convolutions to four times `width`, added to the input; the 3x3 one has the stride."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.path = nn.Sequential(
            nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width),
        )  # fmt: skip
        same = stride == 1 and channels == 4 * width
        self.shortcut = (
            nn.Identity()
            if same
            else nn.Sequential(nn.Conv2d(channels, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width))
        )

    def forward(self, images: Tensor) -> Tensor:
        return nn.functional.relu(self.path(images) + self.shortcut(images))


class ResNet50(nn.Module):
    """Images -> logits. `stem` is "imagenet" (7x7, stride 2, pool) or "cifar" (3x3); `width` is the first stage's."""

    def __init__(
        self,
        classes: int = 1000,
        stem: str = "imagenet",
        width: int = 64,
        depths: tuple[int, ...] = DEPTHS,
        channels: int = 3,
    ) -> None:
        super().__init__()
        if stem not in ("imagenet", "cifar"):
            raise ValueError(f"`stem` must be 'imagenet' or 'cifar', got {stem!r}")
        large = stem == "imagenet"
        convolution = nn.Conv2d(channels, width, 7 if large else 3, 2 if large else 1, 3 if large else 1, bias=False)
        layers: list[nn.Module] = [convolution, nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
        if large:
            layers.append(nn.MaxPool2d(3, 2, 1))
        size = width
        for stage, depth in enumerate(depths):
            for block in range(depth):
                layers.append(Bottleneck(size, width * 2**stage, 2 if stage and not block else 1))
                size = 4 * width * 2**stage
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(size, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(images).mean((2, 3)))
        return logits
