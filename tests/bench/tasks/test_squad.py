"""SQuAD: windows over long texts, answers as spans of the text, F1 as its authors define it, and the fine-tuning."""

from __future__ import annotations

import json
import random

import pytest

torch = pytest.importorskip("torch")

from autolrs.bench.models.bert import CLS, SEP, Bert, Spans  # noqa: E402 - torch may be missing
from autolrs.bench.tasks import _squad, bert  # noqa: E402
from autolrs.bench.tasks._squad import Question, answers, f1, fine_tune, windows  # noqa: E402
from autolrs.bench.tasks._wordpiece import WordPiece  # noqa: E402

NAMES = ["adam", "ruth", "saul", "noah", "mary"]
CITIES = ["rome", "ur", "tyre", "gaza"]
WORDS = WordPiece.learn([*NAMES, *CITIES, "who lives in where does live yes .?"], 200)


def question(draw: random.Random) -> Question:
    """Where somebody lives."""
    name, city = draw.choice(NAMES).title(), draw.choice(CITIES).title()
    text = " ".join([*["Yes."] * draw.randrange(4), f"{name} lives in {city}."])
    return Question(text, f"Where does {name} live?", (city,), text.index(city))


def as_file(questions: list[Question]) -> str:
    """SQuAD's own form."""
    paragraphs = [
        {
            "context": one.text,
            "qas": [
                {
                    "id": str(i),
                    "question": one.question,
                    "answers": [{"text": answer, "answer_start": one.begins} for answer in one.answers],
                }
            ],
        }
        for i, one in enumerate(questions)
    ]
    return json.dumps({"version": "1.1", "data": [{"title": "t", "paragraphs": paragraphs}]})


def test_a_short_text_is_one_window_that_points_at_the_answer():
    (window,) = windows([Question("Saul lives in Tyre.", "Who lives in Tyre?", ("Saul",), 0)], WORDS)
    start = window.tokens.index(SEP) + 1
    assert window.tokens[0] == CLS and window.tokens[-1] == SEP and (window.first, window.last) == (start, start)
    assert window.tokens[start] == WORDS.encode("saul")[0]
    assert window.segments == [0] * start + [1] * (len(window.tokens) - start)
    assert window.places[0] == (0, 4) and len(window.places) == len(window.tokens) - start - 1


def test_windows_of_a_long_text_cover_it_and_those_without_the_answer_point_at_the_first_token():
    text = " ".join(["Ruth lives in Ur."] * 9 + ["Saul lives in Gaza."])
    asked = Question(text, "Who lives in Gaza?", ("Saul",), text.index("Saul"))
    found = windows([asked], WORDS, longest=24, stride=8)
    assert len(found) > 2 and all(len(window.tokens) <= 24 for window in found)
    assert {place for window in found for place in window.places} == {(b, e) for _, b, e in WORDS.places(text)}
    assert (found[0].first, found[0].last) == (0, 0)
    last = found[-1]
    offset = len(last.tokens) - 1 - len(last.places)
    begin, end = last.places[last.first - offset]
    assert text[begin:end] == "Saul" and last.first == last.last


@pytest.mark.parametrize("longest", range(8, 40))
def test_no_token_is_left_out_and_no_window_is_too_long_whatever_the_length(longest):
    text = "Saul lives in Gaza. " * 6
    found = windows([Question(text, "Who lives in Gaza?", ("Saul",), 0)], WORDS, longest, stride=12)
    assert all(len(window.tokens) <= longest for window in found)
    assert {place for window in found for place in window.places} == {(b, e) for _, b, e in WORDS.places(text)}


def test_pieces_keep_their_places_where_lower_case_has_another_length():
    (_, begin, end), *rest = WORDS.places("İ saul")
    assert (begin, end) == (0, 1) and rest == [(WORDS.encode("saul")[0], 2, 6)]


class Pointing(Spans):
    """Points at chosen tokens of each window in turn."""

    def __init__(self, *spans):
        super().__init__(Bert(len(WORDS), 8, 2, 8, 1, 64))
        self.spans = list(spans)

    def forward(self, tokens, segments):
        logits = torch.zeros(len(tokens), 2, tokens.shape[1])
        for i, (first, last, height) in enumerate(self.spans):
            logits[i, 0, first] = logits[i, 1, last] = height
        return logits


def test_the_answer_is_the_best_span_over_windows_and_never_the_question():
    one = Question("Saul lives in Tyre. Ruth lives in Ur.", "Who lives in Ur?", ("Ruth",), 20)
    seen = windows([one], WORDS, longest=12, stride=4)
    offset = seen[0].tokens.index(SEP) + 1
    spans = [(offset, offset, 1.0), (offset, offset + 1, 5.0), *[(1, 2, 50.0)] * (len(seen) - 2)]  # 1, 2: the question
    (told,) = answers(Pointing(*spans), [one], seen, torch.device("cpu"))
    text = one.text[seen[1].places[0][0] : seen[1].places[1][1]]
    assert told == text


def test_a_span_that_ends_before_it_begins_or_is_too_long_is_no_answer():
    text = " ".join(["ur"] * 45)
    one = Question(text, "who?", ("ur",), 0)
    (window,) = windows([one], WORDS, longest=64)
    offset = window.tokens.index(SEP) + 1
    for first, last in ((offset + 9, offset + 3), (offset, offset + _squad.ANSWER)):
        (told,) = answers(Pointing((first, last, 9.0)), [one], [window], torch.device("cpu"))
        assert len(told.split()) <= _squad.ANSWER and told


@pytest.mark.parametrize(
    ("told", "true", "score"),
    [
        ("The Normans.", "normans", 1.0),
        ("in 1066", "1066", 2 / 3),
        ("", "x", 0.0),
        ("the", "a", 1.0),
        ("x x", "x", 2 / 3),
    ],
)
def test_f1_leaves_case_marks_and_articles_out(told, true, score):
    assert f1(told, true) == pytest.approx(score)


def test_fine_tuning_learns_to_answer_and_leaves_the_original_alone():
    draw = random.Random(0)
    torch.manual_seed(0)
    net = Bert(len(WORDS), 32, 4, 64, 2, 48)
    before = net.pooler.weight.clone()
    dev = [question(draw) for _ in range(40)]
    untrained = fine_tune(net, WORDS, dev[:1], dev, epochs=1, lr=0.0)
    learned = fine_tune(net, WORDS, [question(draw) for _ in range(400)], dev, epochs=6, lr=3e-3)
    assert torch.equal(before, net.pooler.weight)
    assert learned > 0.9 > 0.5 > untrained


def test_files_are_read_by_the_full_profile_and_a_broken_one_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("AUTOLRS_DATA", str(tmp_path))
    net, draw = Bert(len(WORDS), 8, 2, 8, 1, 48), random.Random(1)
    assert bert.downstream(net, WORDS) == {}
    (tmp_path / "squad").mkdir()
    for name in _squad.FILES:
        (tmp_path / "squad" / name).write_text(as_file([question(draw) for _ in range(4)]), encoding="utf-8")
    found = bert.downstream(net, WORDS)
    assert set(found) == {"SQuAD"} and 0.0 <= found["SQuAD"] <= 1.0
    for broken in ("{", '{"data": [{"paragraphs": [{"context": "x", "qas": [{"question": "y", "answers": []}]}]}]}'):
        (tmp_path / "squad" / _squad.FILES[1]).write_text(broken)
        with pytest.raises(ValueError, match=r"dev-v1\.1\.json must be a file of SQuAD v1\.1"):
            bert.downstream(net, WORDS)
