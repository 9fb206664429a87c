import errno
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

import autolrs
from autolrs.core.engine import fold
from autolrs.core.settings import Settings
from autolrs.core.types import Finished, Looked, Noted, Probe, Probed, Started
from autolrs.run import journal
from autolrs.run.journal import NAME, Journal, JournalError
from autolrs.run.session import drive
from autolrs.testing import SimulatedHost
from helpers import new_session, of_kind, run, run_altered, small


@pytest.fixture
def folder(tmp_path):
    """A folder with the journal of a whole small run."""
    run(small(n_probes=2), SimulatedHost(), journal=Journal.create(tmp_path / "run"))
    return tmp_path / "run"


def lines(folder):
    return (folder / NAME).read_bytes().split(b"\n")[:-1]


# Round trip


@pytest.mark.parametrize("values", [{}, {"lr": "auto"}, {"replay": True, "keep_winner": True, "warmup_steps": 30}])
def test_reading_a_journal_back_gives_the_run(tmp_path, values):
    session, events = run(small(**values), SimulatedHost(), validation=True, journal=Journal.create(tmp_path))
    assert journal.read(tmp_path) == events
    assert fold(journal.read(tmp_path)) == session.state
    assert journal.read(tmp_path / NAME) == events


def test_losses_that_are_not_finite_are_kept(tmp_path):
    def alter(session, loss):
        return math.nan if isinstance(session.command, Probe) and session.command.index == 1 else loss

    session, events = run_altered(small(), SimulatedHost(), alter, journal=Journal.create(tmp_path))
    assert repr(journal.read(tmp_path)) == repr(events)
    assert repr(fold(journal.read(tmp_path))) == repr(session.state)


def test_journal_is_one_strict_json_object_a_line(folder):
    def refuse(constant):
        raise AssertionError(constant)

    header, *rest = (json.loads(line, parse_constant=refuse) for line in lines(folder))
    assert header["autolrs_journal"] == 1
    assert all(set(row) == {"time", "event"} for row in rest)
    assert [row["event"]["kind"] for row in rest][:3] == ["Started", "Asked", "Probed"]


def test_journal_is_complete_while_the_run_goes_on(tmp_path):
    host = SimulatedHost()
    session, events = new_session(small(), host, journal=Journal.create(tmp_path))
    session.begin()
    while not session.done:
        drive(session, host, 50)
        assert journal.read(tmp_path) == events


class Featherweight:
    """As little host as a million steps need."""

    def __init__(self):
        self.lr, self.count = 0.0, 0

    def snapshot(self):
        return 1

    def restore(self, token):
        pass

    def release(self, token):
        pass

    def set_lr(self, lr):
        self.lr = lr

    def evaluate(self):
        return 0.123456789123456

    def step(self):
        self.count += 1
        return 1.23456789123456 + 1e-3 * ((self.count * 7919) % 101)


@pytest.mark.slow
def test_journal_of_a_million_steps_is_below_four_megabytes(tmp_path):
    settings = Settings(lr=(1e-4, 1.0), total_steps=1_000_000)
    session, _ = run(settings.with_(replay=False), Featherweight(), journal=Journal.create(tmp_path))
    assert session.state.committed_steps == 1_000_000
    assert (tmp_path / NAME).stat().st_size < 4_000_000


# Torn, empty, foreign, newer, damaged


def test_last_line_torn_at_any_byte_is_left_out(folder):
    whole = (folder / NAME).read_bytes()
    events = journal.read(folder)
    for keep in (len(events), 3):  # Finished, and a probe's long line
        data = b"\n".join(lines(folder)[: keep + 1]) + b"\n"
        begin = data.rindex(b"\n", 0, len(data) - 1) + 1
        for size in range(begin, len(data)):
            (folder / NAME).write_bytes(data[:size])
            assert journal.read(folder) == events[: keep - 1]
        (folder / NAME).write_bytes(data)
        assert journal.read(folder) == events[:keep]
        (folder / NAME).write_bytes(whole)


def test_torn_journal_is_mended_by_going_on(folder):
    data = (folder / NAME).read_bytes()
    (folder / NAME).write_bytes(data[:-9])
    book, events = Journal.reopen(folder)
    book.append(Noted("on"))
    assert journal.read(folder) == [*events, Noted("on")]
    assert not of_kind(events, Finished)


def test_line_torn_within_a_character_is_left_out(tmp_path):
    book = Journal.create(tmp_path)
    book.append(Started({}, {}))
    with open(tmp_path / NAME, "ab") as file:
        file.write('{"event":"é'.encode()[:-1])
    assert journal.read(tmp_path) == [Started({}, {})]


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "is empty: nothing was recorded"),
        (b'{"autolrs_journal":1', "has no whole line: nothing was recorded"),
        (b"step,lr\n0,0.1\n", "line 1: not an autolrs journal"),
        (b"[1, 2]\n", "line 1: not an autolrs journal"),
        (b"{}\n", "line 1: not an autolrs journal"),
        (b"\x89PNG\r\n\x1a\n", "line 1: not an autolrs journal"),
        (b'{"autolrs_journal":2}\n', "has schema 2; this autolrs reads up to 1: upgrade autolrs"),
        (b'{"autolrs_journal":1}\n{"event":{"kind":"Noted","message":"x"}}\n', "line 2: a journal begins with Started"),
    ],
)
def test_journal_that_cannot_be_read_says_why(tmp_path, content, what):
    (tmp_path / NAME).write_bytes(content)
    for read in (journal.read, Journal.reopen):
        with pytest.raises(JournalError, match=what):
            read(tmp_path)


def test_folder_without_a_run_says_so(tmp_path):
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(JournalError, match=f"holds no run: {NAME} is missing"):
            Journal.reopen(path)
    with pytest.raises(JournalError, match="is missing"):
        journal.read(tmp_path)


def test_header_alone_is_a_run_without_events(tmp_path):
    Journal.create(tmp_path)
    assert journal.read(tmp_path) == []


@pytest.mark.parametrize(
    "damage",
    [
        b"garbage",
        b"",
        b"{}",
        b"null",
        b'{"event":{"kind":"Rocket"}}',
        b'{"event":{"kind":"Noted"}}',
        b'{"event":{"kind":"Noted","message":"x","more":1}}',
        b'{"event":{"kind":"Segment","steps":1,"lr_start":1.0,"lr_end":1.0}}',
        b'{"event":"Noted"}',
        b"\xff\xfe",
    ],
)
@pytest.mark.parametrize("number", [2, 4, -1])
def test_damaged_line_is_named(folder, damage, number):
    content = lines(folder)
    number = number if number > 0 else len(content)
    content[number - 1] = damage
    (folder / NAME).write_bytes(b"\n".join(content) + b"\n")
    with pytest.raises(JournalError, match=f"line {number}: not a journal event"):
        journal.read(folder)


# Folders and disks


def test_folders_on_the_way_are_made(tmp_path):
    Journal.create(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b" / NAME).exists()


def test_folder_that_holds_a_run_is_refused_and_left_alone(folder):
    before = (folder / NAME).read_bytes()
    with pytest.raises(FileExistsError, match=r"already holds a run: continue it with `autolrs.resume`, or choose"):
        Journal.create(folder)
    assert (folder / NAME).read_bytes() == before


def test_empty_journal_file_may_be_begun_again(tmp_path):
    (tmp_path / NAME).touch()
    Journal.create(tmp_path).append(Started({}, {}))
    assert journal.read(tmp_path) == [Started({}, {})]


@pytest.mark.parametrize("below", ["", "runs/a"])
def test_file_in_the_place_of_the_folder_is_a_clear_error(tmp_path, below):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=r"`run_dir` must be a folder that can be written to, got .*file"):
        Journal.create(tmp_path / "file" / below)


def full(*_args, **_kwargs):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class HalfWritten:
    """A file whose write stops in the middle for want of space."""

    def __init__(self, *args):
        self.file = open(*args)  # noqa: SIM115 - closed on exit

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()

    def __getattr__(self, name):
        return getattr(self.file, name)

    def write(self, data):
        self.file.write(data[: len(data) // 2])
        self.file.flush()
        full()


@pytest.mark.parametrize("where", ["open", "write", "fsync"])
def test_full_disk_does_not_stop_the_training_and_all_lines_arrive_later(tmp_path, monkeypatch, where):
    host = SimulatedHost()
    session, events = new_session(small(), host, journal=Journal.create(tmp_path))
    drive(session, host, 100)
    with monkeypatch.context() as patch:
        if where == "fsync":
            patch.setattr(os, "fsync", full)
        elif where == "open":
            patch.setattr(journal, "open", full, raising=False)
        else:
            patch.setattr(journal, "open", HalfWritten, raising=False)
        with pytest.warns(RuntimeWarning, match="No space left on device; training goes on") as caught:
            drive(session, host, 400)
        if where != "fsync":  # with fsync alone failing, the lines between are written and the warning is due again
            assert len(caught) == 1
    drive(session, host)
    assert journal.read(tmp_path) == events
    assert session.state.committed_steps == 700
    assert fold(journal.read(tmp_path)) == session.state


def test_full_disk_at_the_beginning_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    with pytest.raises(OSError, match=r"`run_dir` must be .*No space left on device"):
        Journal.create(tmp_path)


def test_what_ends_a_stretch_is_on_the_disk_and_decisions_cost_no_sync(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(descriptor))
    _, events = run(small(), SimulatedHost(), journal=Journal.create(tmp_path))
    ends = [event for event in events if type(event).__name__ in ("Started", "Probed", "Committed", "Finished")]
    assert len(synced) == len(ends)
    assert len(of_kind(events, Probed)) == 12


def test_times_are_those_of_the_header_and_of_every_whole_line(tmp_path):
    made = Journal.create(tmp_path)
    made.append(Noted('a remark with "time":1.5 in it'))
    made.append(Noted("another"))
    with open(tmp_path / "journal.jsonl", "ab") as file:
        file.write(b'{"time":3')
    found = journal.times(tmp_path)
    lines = (tmp_path / "journal.jsonl").read_text().splitlines()[:3]
    assert found == [json.loads(line)["time"] for line in lines]
    assert found == sorted(found)


def test_a_run_that_another_process_writes_is_refused(tmp_path):
    program = (
        "import sys, time\n"
        "from autolrs.run.journal import Journal\n"
        "journal = Journal.create(sys.argv[1])\n"
        "print('writing', flush=True)\n"
        "time.sleep(60)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(autolrs.__file__).parents[1])}
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "run")], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout.readline() == "writing\n"
        with pytest.raises(JournalError, match=rf"another process \(pid {process.pid}\) writes the run in"):
            Journal.reopen(tmp_path / "run")
        process.kill()
    journal, events = Journal.reopen(tmp_path / "run")  # the system let go of it
    assert events == [] and journal.path.exists()


@pytest.mark.parametrize(("name", "raw_steps"), [("paper", 156), ("horizon", 680), ("best", 220)])
def test_journals_of_the_first_schema_load(name, raw_steps):
    """Written once and kept: a change that cannot read them any more needs a new schema and a way to read the old."""
    events = journal.read(Path(__file__).parent / "golden" / f"{name}-schema-1.jsonl")
    state = fold(events)
    assert state.finished == "total_steps reached"
    assert state.settings.strategy == ("horizon" if name == "best" else name)
    assert state.best == (Looked(200, 0.11033489778662227) if name == "best" else None)
    assert state.committed_steps == state.schedule.total_steps == state.settings.total_steps
    assert state.raw_steps == raw_steps
