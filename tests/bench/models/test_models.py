"""The paper's models: published sizes, agreement with other implementations, a training step at full size."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")

from autolrs.bench.models.attention import Attention  # noqa: E402 - torch may be missing
from autolrs.bench.models.bert import Bert, Classifier, Pretraining  # noqa: E402
from autolrs.bench.models.resnet import ResNet50  # noqa: E402
from autolrs.bench.models.transformer import PAD, Transformer, sinusoids  # noqa: E402
from autolrs.bench.models.vgg import VGG16  # noqa: E402


def size(model):
    return sum(parameter.numel() for parameter in model.parameters())


PUBLISHED = {
    "VGG-16, CIFAR-10 (kuangliu/pytorch-cifar)": (lambda: VGG16(10), 14_728_266),
    "VGG-16, CIFAR-100 (weiaicunzai/pytorch-cifar100)": (lambda: VGG16(100, hidden=4096), 34_015_396),
    "ResNet-50, ImageNet (25.6M)": (lambda: ResNet50(1000), 25_557_032),
    "ResNet-50, CIFAR-10 (kuangliu/pytorch-cifar)": (lambda: ResNet50(10, "cifar"), 23_520_842),
    "Transformer base, 37,000 tokens (65M)": (Transformer, 63_082_496),
    "BERT base (110M)": (Bert, 109_482_240),
    "BERT base with its heads (110M)": (lambda: Pretraining(Bert()), 110_106_428),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_as_many_as_published(name):
    make, count = PUBLISHED[name]
    with torch.device("meta"):
        assert size(make()) == count


def test_bert_and_its_heads_are_as_large_as_those_of_transformers():
    transformers = pytest.importorskip("transformers")
    with torch.device("meta"):
        other = transformers.BertForPreTraining(transformers.BertConfig())
        assert size(Pretraining(Bert())) == size(other)
        assert size(Bert()) == size(other.bert)


def test_transformer_base_is_as_large_as_torchs_with_one_embedding():
    with torch.device("meta"):
        other = torch.nn.Transformer(512, 8, 6, 6, 2048, batch_first=True)
        norms = size(other.encoder.norm) + size(other.decoder.norm)  # which the original has not
        assert size(Transformer()) - 37_000 * 512 == size(other) - norms


def test_attention_is_torchs():
    torch.manual_seed(0)
    ours, theirs = Attention(16, 4), torch.nn.MultiheadAttention(16, 4, batch_first=True)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([ours.query.weight, ours.key.weight, ours.value.weight]))
        theirs.in_proj_bias.copy_(torch.cat([ours.query.bias, ours.key.bias, ours.value.bias]))
        theirs.out_proj.weight.copy_(ours.mix.weight)
        theirs.out_proj.bias.copy_(ours.mix.bias)
    x, memory = torch.randn(2, 5, 16), torch.randn(2, 7, 16)
    mask = torch.ones(2, 7, dtype=torch.bool)
    mask[1, 4:] = False
    expected = theirs(x, memory, memory, key_padding_mask=~mask)[0]
    torch.testing.assert_close(ours(x, memory, mask), expected, atol=1e-5, rtol=1e-5)


def test_no_target_token_sees_the_next_and_no_token_sees_padding():
    torch.manual_seed(0)
    model = Transformer(20, 16, 2, 32, 2).eval()
    source, target = torch.randint(1, 20, (1, 6)), torch.randint(1, 20, (1, 5))
    logits = model(source, target)
    changed = target.clone()
    changed[0, 3] = target[0, 3] % 19 + 1
    torch.testing.assert_close(model(source, changed)[:, :3], logits[:, :3])
    assert not torch.allclose(model(source, changed)[:, 3], logits[:, 3])
    padded = torch.cat([source, torch.full((1, 4), PAD)], dim=1)
    torch.testing.assert_close(model(padded, target), logits, atol=1e-5, rtol=1e-5)


def test_sinusoids_are_the_equation():
    table = sinusoids(50, 8)
    assert table[7, 4].item() == pytest.approx(math.sin(7 / 10_000 ** (4 / 8)), abs=1e-6)
    assert table[7, 5].item() == pytest.approx(math.cos(7 / 10_000 ** (4 / 8)), abs=1e-6)


def test_translation_ends_at_the_end_and_pads_afterwards():
    torch.manual_seed(0)
    model = Transformer(20, 16, 2, 32, 1).eval()
    out = model.translate(torch.randint(1, 20, (4, 6)), begin=1, end=2, longest=9)
    assert out.shape[0] == 4 and out.shape[1] <= 9
    for row in out.tolist():
        if 2 in row:
            assert set(row[row.index(2) + 1 :]) <= {PAD}


def test_narrow_members_have_the_same_shape():
    images = torch.randn(2, 3, 32, 32)
    assert VGG16(10, width=0.125)(images).shape == (2, 10)
    assert ResNet50(10, "cifar", width=8, depths=(1, 1, 1, 1))(images).shape == (2, 10)
    assert ResNet50(7, "imagenet", width=8, depths=(1, 1, 1, 1))(torch.randn(2, 3, 64, 64)).shape == (2, 7)
    tokens = torch.randint(4, 30, (2, 9))
    assert Classifier(Bert(30, 16, 2, 32, 2, 16), 3)(tokens, torch.zeros_like(tokens)).shape == (2, 3)


def test_what_cannot_be_built_is_said():
    with pytest.raises(ValueError, match="`stem` must be"):
        ResNet50(10, "mnist")
    with pytest.raises(ValueError, match="multiple of `heads`"):
        Attention(10, 3)


def one_step(model, loss):
    """A step of plain SGD on a batch must lower that batch's loss."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model.train()
    torch.manual_seed(0)
    before = loss()
    before.backward()
    assert all(p.grad is None or torch.isfinite(p.grad).all() for p in model.parameters())
    optimizer.step()
    torch.manual_seed(0)  # the same dropout
    with torch.no_grad():
        assert loss() < before


def images_step(model, classes, shape):
    images, labels = torch.randn(*shape), torch.arange(shape[0]) % classes
    one_step(model, lambda: torch.nn.functional.cross_entropy(model(images), labels))


@pytest.mark.parametrize("name", ["vgg16-cifar10", "vgg16-cifar100", "resnet50-cifar10", "resnet50-imagenet"])
def test_a_full_size_image_model_takes_a_step(name):
    torch.manual_seed(0)
    model, classes, shape = {
        "vgg16-cifar10": lambda: (VGG16(10), 10, (4, 3, 32, 32)),
        "vgg16-cifar100": lambda: (VGG16(100, hidden=4096), 100, (4, 3, 32, 32)),
        "resnet50-cifar10": lambda: (ResNet50(10, "cifar"), 10, (4, 3, 32, 32)),
        "resnet50-imagenet": lambda: (ResNet50(1000), 1000, (2, 3, 224, 224)),
    }[name]()
    images_step(model, classes, shape)


def test_transformer_base_takes_a_step():
    torch.manual_seed(0)
    model = Transformer()
    source, target = torch.randint(1, 37_000, (2, 12)), torch.randint(1, 37_000, (2, 10))
    one_step(
        model,
        lambda: torch.nn.functional.cross_entropy(model(source, target[:, :-1]).flatten(0, 1), target[:, 1:].flatten()),
    )


def test_bert_base_takes_a_step():
    torch.manual_seed(0)
    model = Pretraining(Bert())
    tokens = torch.randint(4, 30_522, (2, 32))
    segments = (torch.arange(32) >= 16).long().expand(2, 32)

    def loss():
        states, follows = model(tokens, segments)
        words = torch.nn.functional.cross_entropy(model.words(states[:, 5]), tokens[:, 5])
        return words + torch.nn.functional.cross_entropy(follows, torch.tensor([0, 1]))

    one_step(model, loss)
