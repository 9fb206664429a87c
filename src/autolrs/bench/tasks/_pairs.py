"""English-German pairs: WMT 2014 as the Stanford and TensorFlow NMT projects ship it, or message catalogues.

WMT's files are tokenised and split into sub-words already, so a line is read by its spaces. Catalogues are the
messages of programs: real, small, and short of grammar. Rows of the benchmark rest on those of `PACKAGES`, which are
the same on every machine; a smoke test takes those that the machine has.
"""

from __future__ import annotations

import gettext
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import IO, NamedTuple

import torch
from torch import Tensor

from autolrs.bench.models.transformer import PAD
from autolrs.bench.tasks._task import permutation
from autolrs.bench.tasks.data import first_existing, folder

BEGIN, END, UNKNOWN = 1, 2, 3
SPECIAL = 4
CATALOGUES = Path("/usr/share/locale/de/LC_MESSAGES")
PACKAGES = (  # of PyPI, whose versions never change: 19,000 short German messages in all
    "pretix==2026.8.0",
    "gramps==6.0.8",
    "mayan-edms==4.12.2",
    "misago==0.39.6",
    "spyder==6.1.8",
    "django-oscar==3.2.5",
    "wagtail==6.4",
    "trac==1.6",
    "nicotine-plus==3.3.11",
    "deluge==2.2.0",
)

Pair = tuple[list[int], list[int]]  # source, and target between BEGIN and END


class Pairs(NamedTuple):
    """Numbered sentence pairs in three parts; `vocabulary` counts the special tokens too."""

    vocabulary: int
    train: list[Pair]
    validation: list[Pair]
    test: list[Pair]


def find_wmt14() -> Path:
    """The folder with train, newstest2013 and newstest2014 in both languages and the shared vocabulary."""
    root = first_existing(
        folder() / "wmt14" / "vocab.bpe.32000",
        help_text="Put wmt14 en-de there as google/seq2seq's wmt16_en_de.tar.gz has it: train.tok.clean.bpe.32000.en "
        "and .de, newstest2013.tok.bpe.32000 and newstest2014.tok.bpe.32000 in both, and vocab.bpe.32000.",
    ).parent
    for name in ("train.tok.clean.bpe.32000", "newstest2013.tok.bpe.32000", "newstest2014.tok.bpe.32000"):
        for language in ("en", "de"):
            if not (root / f"{name}.{language}").exists():
                raise FileNotFoundError(f"{root / name}.{language} is missing from an otherwise complete wmt14 folder")
    return root


@lru_cache(maxsize=1)
def wmt14(longest: int = 100) -> Pairs:
    """WMT 2014, sentences of up to `longest` sub-words."""
    root = find_wmt14()
    words = (root / "vocab.bpe.32000").read_text(encoding="utf-8").split("\n")
    number = {word: SPECIAL + i for i, word in enumerate(word for word in words if word)}

    def part(name: str) -> list[Pair]:
        sides = [(root / f"{name}.{language}").read_text(encoding="utf-8").splitlines() for language in ("en", "de")]
        if len(sides[0]) != len(sides[1]):
            raise ValueError(f"{root / name} must have as many lines in .en as in .de, got {[len(s) for s in sides]}")
        pairs = [_numbered(en.split(), de.split(), number) for en, de in zip(*sides, strict=True)]
        return [pair for pair in pairs if 0 < len(pair[0]) <= longest and len(pair[1]) <= longest + 2]

    return Pairs(
        SPECIAL + len(number),
        part("train.tok.clean.bpe.32000"),
        part("newstest2013.tok.bpe.32000"),
        part("newstest2014.tok.bpe.32000"),
    )


def package_file(package: str) -> Path:
    """Where `autolrs bench data catalogues` puts the messages of a package, as a JSON object: English -> German."""
    return folder() / "catalogues" / f"{package}.json"


def find_catalogues() -> list[Path]:
    """The messages of all `PACKAGES`."""
    files = [package_file(package) for package in PACKAGES]
    missing = [str(path) for path in files if not path.exists()]
    if missing:
        raise FileNotFoundError(f"no German messages at {missing[0]}. Run: autolrs bench data catalogues")
    return files


def find_any_catalogues() -> list[Path]:
    """The messages of all `PACKAGES`, or else the machine's own, which are others on every machine."""
    try:
        return find_catalogues()
    except FileNotFoundError as error:
        files = sorted(CATALOGUES.glob("*.mo"))
        if not files:
            raise FileNotFoundError(f"{error}. There is no .mo file in {CATALOGUES} either") from None
        return files


@lru_cache(maxsize=1)
def catalogues() -> Pairs:
    """Short messages of all `PACKAGES`."""
    return _short(find_catalogues())


@lru_cache(maxsize=1)
def any_catalogues() -> Pairs:
    """Short messages of whatever is here."""
    return _short(find_any_catalogues())


def messages(file: IO[bytes]) -> dict[str, str]:
    """English -> German of one .mo file; those with a plural form, and those that are not translated, left out."""
    entries = gettext.GNUTranslations(file)._catalog.items()  # type: ignore[attr-defined, arg-type]
    return {k: v for k, v in entries if isinstance(k, str) and isinstance(v, str) and k and v and k != v}


def _read(path: Path) -> dict[str, str]:
    if path.suffix == ".json":
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            return {str(english): str(german) for english, german in found.items()}
        except (ValueError, AttributeError) as error:
            raise ValueError(
                f"{path} must be a JSON object of messages: {error}. Remove it and run: autolrs bench data catalogues"
            ) from None
    try:
        with open(path, "rb") as file:
            return messages(file)
    except (OSError, UnicodeDecodeError):  # a catalogue in another encoding than it says
        return {}


def _short(files: Sequence[Path], vocabulary: int = 2000, longest: int = 12) -> Pairs:
    """Messages of up to `longest` words and their translations, 90 / 5 / 5 %; rare words share one number."""
    found: dict[str, str] = {}
    for path in files:
        found |= _read(path)
    pairs = [(_words(english), _words(german)) for english, german in sorted(found.items())]
    pairs = [(en, de) for en, de in pairs if 2 <= len(en) <= longest and 1 <= len(de) <= longest]
    if len(pairs) < 1000:
        raise ValueError(
            f"catalogues must hold at least 1000 short messages, got {len(pairs)} in {files[0].parent}. "
            "Run: autolrs bench data catalogues"
        )
    counts = Counter(word for pair in pairs for side in pair for word in side)
    number = {word: SPECIAL + i for i, (word, _) in enumerate(counts.most_common(vocabulary - SPECIAL))}
    order = permutation(len(pairs), 0, 0).tolist()
    numbered = [_numbered(pairs[i][0], pairs[i][1], number) for i in order]
    first, second = int(0.90 * len(numbered)), int(0.95 * len(numbered))
    return Pairs(SPECIAL + len(number), numbered[:first], numbered[first:second], numbered[second:])


def _words(text: str) -> list[str]:
    """Lower-case words and marks; placeholders such as %s stay whole."""
    return re.findall(r"%[-\w.]*[a-z]|\w+|[^\w\s]", text.lower())


def _numbered(source: Sequence[str], target: Sequence[str], number: dict[str, int]) -> Pair:
    return (
        [number.get(word, UNKNOWN) for word in source],
        [BEGIN, *(number.get(word, UNKNOWN) for word in target), END],
    )


def padded(pairs: Sequence[Pair]) -> tuple[Tensor, Tensor]:
    """Sources and targets as two tensors (n, longest), filled up with PAD."""
    sides = []
    for side in (0, 1):
        rows = [torch.tensor(pair[side]) for pair in pairs]
        sides.append(torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD))
    return sides[0], sides[1]


class PairBatches:
    """Re-iterable batches of about `tokens` target tokens, of pairs of like length, in an order of (seed, epoch)."""

    def __init__(self, pairs: Sequence[Pair], tokens: int, seed: int) -> None:
        self.pairs, self.tokens, self.seed, self.epoch = pairs, tokens, seed, 0
        order = sorted(range(len(pairs)), key=lambda i: (len(pairs[i][1]), len(pairs[i][0])))
        self._batches: list[list[int]] = []
        batch: list[int] = []
        for i in order:
            if batch and (len(batch) + 1) * len(pairs[i][1]) > tokens:
                self._batches.append(batch)
                batch = []
            batch.append(i)
        self._batches.append(batch)

    def __len__(self) -> int:
        return len(self._batches)

    def set_epoch(self, epoch: int) -> None:
        """Make the next `iter()` give this epoch."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        order = permutation(len(self._batches), self.seed, self.epoch).tolist()
        self.epoch += 1
        for i in order:
            yield padded([self.pairs[j] for j in self._batches[i]])


def bleu(candidates: Sequence[Sequence[int]], references: Sequence[Sequence[int]]) -> float:
    """Corpus BLEU-4 with brevity penalty (Papineni et al. 2002), one reference each; 0 without any common 4-gram.

    >>> bleu([[1, 2, 3, 4, 5]], [[1, 2, 3, 4, 5]])
    1.0
    """
    right, total = [0] * 4, [0] * 4
    for candidate, reference in zip(candidates, references, strict=True):
        for n in range(1, 5):
            ours, theirs = (
                Counter(tuple(side[i : i + n]) for i in range(len(side) - n + 1)) for side in (candidate, reference)
            )
            right[n - 1] += (ours & theirs).total()
            total[n - 1] += ours.total()
    if not all(right):
        return 0.0
    length, wanted = sum(map(len, candidates)), sum(map(len, references))
    brevity = min(0.0, 1.0 - wanted / length)
    return math.exp(brevity + sum(math.log(r / t) for r, t in zip(right, total, strict=True)) / 4)
