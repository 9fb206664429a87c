"""Text for BERT: WordPiece tokens, documents as lists of sentences, and pre-training examples made from them."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from autolrs.bench.models.bert import CLS, MASK, PAD, SEP
from autolrs.bench.tasks import data
from autolrs.bench.tasks.data import first_existing, folder

UNKNOWN = 4
SPECIAL = ("[PAD]", "[CLS]", "[SEP]", "[MASK]", "[UNK]")
MASKED = 0.15
WORD = re.compile(r"\w+|[^\w\s]")  # a word or a mark

Document = list[list[int]]  # sentences of token numbers
Example = tuple[list[int], list[int], int]  # tokens, segments, whether the second text follows the first


class WordPiece:
    """Greedy longest-match-first tokens; a piece inside a word begins with ##. Numbers 0 to 4 are the special ones."""

    def __init__(self, pieces: Sequence[str]) -> None:
        ordered = dict.fromkeys([*SPECIAL, *pieces])
        self.number = {piece: i for i, piece in enumerate(ordered)}

    @classmethod
    def learn(cls, texts: Sequence[str], size: int) -> WordPiece:
        """The characters, alone and inside words, and the most frequent words: enough for a small model."""
        counts = Counter(word for text in texts for word in basic(text))
        characters = sorted({character for word in counts for character in word})
        pieces = [*characters, *(f"##{character}" for character in characters)]
        words = [word for word, _ in counts.most_common() if len(word) > 1]
        return cls([*pieces, *words][: max(0, size - len(SPECIAL))])

    def __len__(self) -> int:
        return len(self.number)

    def encode(self, text: str) -> list[int]:
        """Token numbers of a text; a word that has no pieces is one unknown."""
        return [number for number, _, _ in self.places(text)]

    def places(self, text: str) -> list[tuple[int, int, int]]:
        """(token number, where it begins in the text, where it ends) of each token.

        >>> WordPiece(["in", "##deed", "!"]).places("Indeed!")
        [(5, 0, 2), (6, 2, 6), (7, 6, 7)]
        """
        found = []
        for match in WORD.finditer(text):
            start, word = match.start(), match.group().lower()
            pieces = self._word(word)
            if len(word) != match.end() - start:  # a letter whose small form is two: the pieces are not told apart
                pieces = [(number, 0, match.end() - start) for number, _, _ in pieces]
            found += [(number, start + begin, start + end) for number, begin, end in pieces]
        return found

    def _word(self, word: str) -> list[tuple[int, int, int]]:
        found, start = [], 0
        while start < len(word):
            for end in range(len(word), start, -1):
                number = self.number.get(("##" if start else "") + word[start:end])
                if number is not None:
                    found.append((number, start, end))
                    start = end
                    break
            else:
                return [(UNKNOWN, 0, len(word))]
        return found


def basic(text: str) -> list[str]:
    """Lower-case words and marks."""
    return [word.lower() for word in WORD.findall(text)]


def find_corpus() -> Path:
    """The folder of the pre-training text and its vocabulary."""
    root = first_existing(
        folder() / "bert" / "vocab.txt",
        help_text="Put the vocabulary of bert-base-uncased (vocab.txt) and the text there, as *.txt files with one "
        "sentence a line and an empty line between documents: English Wikipedia and books.",
    ).parent
    if not [path for path in root.glob("*.txt") if path.name != "vocab.txt"]:
        raise FileNotFoundError(f"{root} has a vocabulary but no *.txt file of text beside it")
    return root


@lru_cache(maxsize=1)
def corpus() -> tuple[WordPiece, list[Document]]:
    """The user's text. The special tokens of vocab.txt get the numbers that are fixed here."""
    root = find_corpus()
    words = WordPiece((root / "vocab.txt").read_text(encoding="utf-8").splitlines())
    documents: list[Document] = []
    for path in sorted(root.glob("*.txt")):
        if path.name != "vocab.txt":
            for block in path.read_text(encoding="utf-8").split("\n\n"):
                sentences = [words.encode(line) for line in block.splitlines()]
                documents.append([sentence for sentence in sentences if sentence])
    return words, [document for document in documents if len(document) > 1]


@lru_cache(maxsize=2)
def bible(size: int = 1000) -> tuple[WordPiece, list[Document], list[str]]:
    """The King James Bible by chapter, verses as sentences, and the verses themselves in order."""
    verses = data.bible_verses()
    words = WordPiece.learn(verses, size)
    encoded = [words.encode(verse) for verse in verses]
    documents = [encoded[start : start + 25] for start in range(0, len(encoded), 25)]
    return words, [document for document in documents if len(document) > 1], verses


class Examples:
    """Re-iterable batches (tokens, segments, masked targets or -100, follows), each (batch, length) but the last.

    Two stretches of sentences, half of the time from different documents; 15 % of tokens are to be told, of which 80 %
    are masked, 10 % replaced and 10 % left. `length` may be changed between batches. All is drawn from (seed, epoch).
    """

    def __init__(self, documents: Sequence[Document], vocabulary: int, batch: int, length: int, seed: int) -> None:
        self.documents, self.vocabulary, self.batch, self.length = documents, vocabulary, batch, length
        self.seed, self.epoch = seed, 0

    def set_epoch(self, epoch: int) -> None:
        """Make the next `iter()` give this epoch."""
        self.epoch = epoch

    def __len__(self) -> int:
        return max(1, len(self.documents) // self.batch)

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        draw = random.Random(1_000_003 * self.seed + self.epoch)
        self.epoch += 1
        for _ in range(len(self)):
            rows = [self._example(draw) for _ in range(self.batch)]
            yield collate(rows, self.length, self.vocabulary, draw)

    def _example(self, draw: random.Random) -> Example:
        document = draw.choice(self.documents)
        cut = draw.randrange(1, len(document))
        follows = draw.random() < 0.5
        room = self.length - 3
        first = [token for sentence in document[:cut] for token in sentence][-(room // 2) :]
        after = document[cut:] if follows else draw.choice(self.documents)
        second = [token for sentence in after for token in sentence][: room - len(first)]
        tokens = [CLS, *first, SEP, *second, SEP]
        return tokens, [0] * (len(first) + 2) + [1] * (len(second) + 1), int(follows)


def collate(rows: Sequence[Example], length: int, vocabulary: int, draw: random.Random) -> tuple[Tensor, ...]:
    """A batch with its masks drawn; at least one token of each example is to be told."""
    tokens = torch.full((len(rows), length), PAD)
    segments, targets = torch.zeros_like(tokens), torch.full_like(tokens, -100)
    for i, (row, parts, _) in enumerate(rows):
        tokens[i, : len(row)], segments[i, : len(row)] = torch.tensor(row), torch.tensor(parts)
        places = [j for j, token in enumerate(row) if token >= UNKNOWN]
        for j in draw.sample(places, max(1, round(MASKED * len(places)))) if places else ():
            targets[i, j] = row[j]
            luck = draw.random()
            if luck < 0.9:
                tokens[i, j] = MASK if luck < 0.8 else draw.randrange(UNKNOWN, vocabulary)
    return tokens, segments, targets, torch.tensor([follows for _, _, follows in rows])
