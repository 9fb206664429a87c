"""The server over a folder of runs: pages, refusals, and what it must never give away."""

from __future__ import annotations

import http.client
import threading
from contextlib import contextmanager

import pytest
from simulated_events import SMALL

pytest.importorskip("plotly")

from autolrs.core import strategies
from autolrs.core.settings import Settings
from autolrs.report.server import ReportServer
from autolrs.run.journal import Journal
from autolrs.run.session import Session, drive
from autolrs.testing.simulated import SimulatedHost


def make_run(folder, steps=None) -> tuple[Session, SimulatedHost]:
    host = SimulatedHost(seed=1)
    session = Session(host, Settings(**SMALL), strategies.get("paper"), journal=Journal.create(folder))
    drive(session, host, steps)
    return session, host


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    tmp_path = tmp_path_factory.mktemp("served")
    runs = tmp_path / "runs"
    make_run(runs / "done")
    make_run(runs / "deep" / "under way", steps=230)
    (runs / "secret.txt").write_text("a secret of the folder")
    make_run(tmp_path / "outside")
    (tmp_path / "outside.txt").write_text("a secret outside")
    (runs / "link").symlink_to(tmp_path / "outside")
    (runs / "sly").mkdir()
    (runs / "sly" / "journal.jsonl").symlink_to(tmp_path / "outside" / "journal.jsonl")
    return runs


@contextmanager
def serving(folder):
    made = ReportServer(folder)
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        made.shutdown()
        made.server_close()
        thread.join(10)


@pytest.fixture(scope="module")
def server(folder):
    with serving(folder) as made:
        yield made


def ask(server, path, method="GET", host=None):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    try:
        connection.putrequest(method, path, skip_host=True)
        connection.putheader("Host", host or f"127.0.0.1:{server.server_port}")
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), dict(answer.getheaders())
    finally:
        connection.close()


def test_only_this_machine_is_served(server):
    assert server.server_address[0] == "127.0.0.1"
    assert ask(server, "/", host="evil.example")[0] == 403
    assert ask(server, "/", host=f"localhost:{server.server_port}")[0] == 200


def test_the_index_names_the_runs_and_their_state(server):
    status, text, _ = ask(server, "/")
    assert status == 200
    assert 'href="/run/done"' in text and 'href="/run/deep/under%20way"' in text
    assert "700 of 700" in text and "not finished" in text
    assert "outside" not in text


def test_a_run_has_its_report_with_the_script_from_here(server):
    status, text, headers = ask(server, "/run/done")
    assert status == 200 and headers["Content-Type"] == "text/html; charset=utf-8"
    assert "How each learning rate was chosen" in text and '<script src="/plotly.js">' in text
    assert len(text) < 1_000_000 and "data-live" not in text  # it is finished
    status, script, headers = ask(server, "/plotly.js")
    assert status == 200 and len(script) > 1_000_000 and "max-age" in headers["Cache-Control"]


def test_runs_are_compared(server):
    status, text, _ = ask(server, "/compare")
    assert status == 200 and "2 runs compared" in text


def test_the_page_of_a_run_under_way_follows_it(tmp_path):
    session, host = make_run(tmp_path / "live", steps=100)
    with serving(tmp_path) as server:
        _, text, _ = ask(server, "/run/live")
        stamp = ask(server, "/stamp/live")[1]
        assert f'data-live="/stamp/live" data-stamp="{stamp}"' in text
        drive(session, host)
        assert ask(server, "/stamp/live")[1] != stamp
        assert "finished: total_steps reached" in ask(server, "/run/live")[1]


@pytest.mark.parametrize(
    "path",
    [
        *("/run/../outside", "/run/%2e%2e/outside", "/run/..%2foutside", "/run//etc/passwd", "/run/done/../../outside"),
        *("/run/link", "/run/sly", "/stamp/link", "/stamp/../outside", "/run/%00", "/secret.txt", "/run/secret.txt"),
        *("/../outside.txt", "/run/done/journal.jsonl", "/run/nothing", "/journal.jsonl", "/favicon.ico", "/run/"),
    ],
)
def test_nothing_but_runs_below_the_folder_is_given_out(server, path):
    status, text, _ = ask(server, path)
    assert status == 404
    assert "secret" not in text and "root:" not in text


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_it_only_reads(server, method):
    status, _, headers = ask(server, "/run/done", method)
    assert status == 405 and headers["Allow"] == "GET, HEAD"


def test_head_is_get_without_the_body(server):
    status, text, headers = ask(server, "/run/done", "HEAD")
    assert (status, text) == (200, "") and int(headers["Content-Length"]) > 10_000


@pytest.mark.parametrize("damage", ["", '{"hello": 1}\n'])
def test_a_damaged_journal_is_told_and_does_not_stop_the_others(tmp_path, damage):
    make_run(tmp_path / "good", steps=60)
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "journal.jsonl").write_text(damage)
    with serving(tmp_path) as server:
        status, text, _ = ask(server, "/run/bad")
        assert status == 500 and ("nothing was recorded" in text or "not an autolrs journal" in text)
        assert ask(server, "/")[0] == 200 and ask(server, "/run/good")[0] == 200


def test_a_folder_that_is_a_run_itself_is_shown_at_once(folder):
    server = ReportServer(folder / "done")
    try:
        assert "Schedule" in server.answer("/")[1]
    finally:
        server.server_close()


def test_a_file_is_no_folder(folder):
    with pytest.raises(NotADirectoryError, match="is not a folder"):
        ReportServer(folder / "secret.txt")
