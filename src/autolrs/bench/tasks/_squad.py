"""SQuAD v1.1 (Rajpurkar et al. 2016): BERT is fine-tuned to point at the answer in a text; F1 over shared words.

A text that does not fit beside its question is read through windows that overlap. In training a window without the
answer points at its first token; in the end the best span over all windows of a question is its answer.
"""

from __future__ import annotations

import copy
import json
import re
import string
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from autolrs.bench.models.bert import CLS, SEP, Bert, Spans
from autolrs.bench.tasks._fine_tuning import padded, tune
from autolrs.bench.tasks._task import seeded
from autolrs.bench.tasks._wordpiece import WordPiece
from autolrs.bench.tasks.data import folder

LONGEST, STRIDE, QUESTION, ANSWER = 384, 128, 64, 30  # tokens: of a window, between two, of a question, of an answer
FILES = ("train-v1.1.json", "dev-v1.1.json")


@dataclass(frozen=True, slots=True)
class Question:
    """A question about a text, with the answers that people gave and where the first of them begins."""

    text: str
    question: str
    answers: tuple[str, ...]
    begins: int


class Window(NamedTuple):
    """One reading of a text beside its question; the answer lies at tokens `first` to `last`, 0 if it is not here."""

    tokens: list[int]
    segments: list[int]
    first: int
    last: int
    question: int  # which one
    places: list[tuple[int, int]]  # where each token of the text begins and ends in it; they are the last but one


def read(path: Path) -> list[Question]:
    """All questions of a file in SQuAD's own form."""
    try:
        articles = json.loads(path.read_text(encoding="utf-8"))["data"]
        return [
            Question(
                paragraph["context"],
                asked["question"],
                tuple(answer["text"] for answer in asked["answers"]),
                asked["answers"][0]["answer_start"],
            )
            for article in articles
            for paragraph in article["paragraphs"]
            for asked in paragraph["qas"]
        ]
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise ValueError(f"{path} must be a file of SQuAD v1.1, got {error!r}") from error


def windows(
    questions: Sequence[Question], words: WordPiece, longest: int = LONGEST, stride: int = STRIDE
) -> list[Window]:
    """Every reading of every question, of at most `longest` tokens."""
    return [window for i, question in enumerate(questions) for window in _windows(i, question, words, longest, stride)]


def _windows(index: int, question: Question, words: WordPiece, longest: int, stride: int) -> Iterator[Window]:
    asked = [CLS, *words.encode(question.question)[: min(QUESTION, longest // 2)], SEP]
    text, room = words.places(question.text), longest - len(asked) - 1
    ends = question.begins + len(question.answers[0])
    hit = [i for i, (_, begin, end) in enumerate(text) if begin < ends and end > question.begins]
    stride = min(stride, room)
    for start in range(0, max(1, len(text) - room + stride), stride):
        part = text[start : start + room]
        here = bool(hit) and hit[0] >= start and hit[-1] < start + len(part)
        shift = len(asked) - start
        yield Window(
            [*asked, *(number for number, _, _ in part), SEP],
            [0] * len(asked) + [1] * (len(part) + 1),
            hit[0] + shift if here else 0,
            hit[-1] + shift if here else 0,
            index,
            [(begin, end) for _, begin, end in part],
        )


def fine_tune(
    bert: Bert,
    words: WordPiece,
    train: Sequence[Question],
    dev: Sequence[Question],
    epochs: int = 3,
    batch: int = 32,
    lr: float = 5e-5,
) -> float:
    """F1 on `dev` after training a copy as the original does; `bert` stays as it is."""
    where, longest = next(bert.parameters()).device, min(LONGEST, bert.positions.num_embeddings)
    stride = min(STRIDE, longest // 3)
    seen = windows(train, words, longest, stride)
    with seeded(0):
        net = Spans(copy.deepcopy(bert)).to(where)

        def loss(rows: list[int]) -> Tensor:
            part = [seen[i] for i in rows]
            targets = torch.tensor([[window.first, window.last] for window in part]).to(where)
            logits = net(*padded(part, where))
            return (functional.cross_entropy(logits[:, 0], targets[:, 0])
                    + functional.cross_entropy(logits[:, 1], targets[:, 1])) / 2  # fmt: skip

        tune(net, len(seen), loss, epochs, batch, lr)
    told = answers(net, dev, windows(dev, words, longest, stride), where)
    return sum(max(f1(a, true) for true in q.answers) for a, q in zip(told, dev, strict=True)) / len(dev)


@torch.no_grad()
def answers(net: Spans, questions: Sequence[Question], seen: Sequence[Window], where: torch.device) -> list[str]:
    """The best span of the text for each question."""
    best: list[tuple[float, str]] = [(-float("inf"), "")] * len(questions)
    for at in range(0, len(seen), 64):
        part = seen[at : at + 64]
        for window, logits in zip(part, net(*padded(part, where)).float().cpu(), strict=True):
            count = len(window.places)
            first = len(window.tokens) - 1 - count
            starts, ends = logits[:, first : first + count]
            allowed = torch.ones(count, count, dtype=torch.bool).triu().tril(ANSWER - 1)
            score, place = (starts[:, None] + ends).masked_fill(~allowed, -torch.inf).flatten().max(0)
            if score.item() > best[window.question][0]:
                i, j = divmod(int(place), count)
                text = questions[window.question].text[window.places[i][0] : window.places[j][1]]
                best[window.question] = (score.item(), text)
    return [text for _, text in best]


def f1(told: str, true: str) -> float:
    """Harmonic mean of precision and recall over words, with case, marks and articles left out.

    >>> f1("the Norman conquest", "Norman conquest!"), f1("Norman", "the Norman conquest"), f1("a", "b")
    (1.0, 0.6666666666666666, 0.0)
    """
    mine, theirs = _plain(told), _plain(true)
    common = sum((Counter(mine) & Counter(theirs)).values())
    if not mine or not theirs:
        return float(mine == theirs)
    return 2.0 * common / (len(mine) + len(theirs))


def _plain(text: str) -> list[str]:
    bare = "".join(character for character in text.lower() if character not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", bare).split()


def squad(bert: Bert, words: WordPiece) -> dict[str, float]:
    """F1 after fine-tuning, if SQuAD v1.1 is in squad/ of the data folder, as its two JSON files."""
    files = [folder() / "squad" / name for name in FILES]
    if not all(file.exists() for file in files):
        return {}
    train, dev = map(read, files)
    return {"SQuAD": fine_tune(bert, words, train, dev)}
