"""A small read-only server over a folder of runs, for this machine alone; pages are made anew from the journals.

Only GET and HEAD; only requests that name this machine as their host, so that no web page elsewhere can read through a
browser; only folders below the root that hold a journal.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from html import escape
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from autolrs.report import page
from autolrs.report.load import load
from autolrs.run.journal import NAME

MAX_COMPARED = 8
_DEPTH = 4  # folders below the root in which runs are looked for


class NotHereError(Exception):
    """Nothing to show at this address, and why."""


class ReportServer(ThreadingHTTPServer):
    """Serves the reports of all runs in `root`, or of `root` itself if it is a run; on the loopback address only."""

    daemon_threads = True

    def __init__(self, root: str | Path, port: int = 0) -> None:
        self.root = Path(root).resolve()
        if not self.root.is_dir():
            raise NotADirectoryError(f"{root} is not a folder")
        super().__init__(("127.0.0.1", port), _Handler)

    @property
    def url(self) -> str:
        """Where to look."""
        return f"http://127.0.0.1:{self.server_port}/"

    def run_folder(self, relative: str) -> Path:
        """The run folder at `relative`; anything that leads out of the root, by links too, or is no run is refused."""
        journal = self.root / relative / NAME
        if "\0" in relative or not journal.resolve().is_relative_to(self.root) or not journal.is_file():
            raise NotHereError("no run here")
        return journal.parent.resolve()

    def runs(self) -> Iterator[str]:
        """Addresses of the runs below the root, in the order of their names; `.` is the root itself."""
        for folder, below, names in os.walk(self.root):
            here = Path(folder).relative_to(self.root)
            below[:] = sorted(name for name in below if not name.startswith(".")) if len(here.parts) < _DEPTH else []
            if NAME in names and (self.root / here / NAME).resolve().is_relative_to(self.root):
                yield here.as_posix()

    def answer(self, path: str) -> tuple[str, str]:
        """Content type and text of the page at `path`."""
        if path == "/plotly.js":
            return "text/javascript", page.plotly_js()
        kind, _, rest = path.lstrip("/").partition("/")
        if kind == "stamp":
            return "text/plain", _stamp(self.run_folder(rest))
        if kind == "run":
            return "text/html", self._run(rest)
        if path == "/compare":
            names = list(self.runs())[:MAX_COMPARED]
            if len(names) < 2:
                raise NotHereError("fewer than two runs to compare")
            runs = [load(self.run_folder(name)) for name in names]
            return "text/html", page.render(runs, paths=[str(self.root / name) for name in names], script="/plotly.js")
        if path == "/":
            names = list(self.runs())
            return "text/html", self._run(".") if names == ["."] else self._index(names)
        raise NotHereError("nothing here")

    def _run(self, relative: str) -> str:
        folder = self.run_folder(relative)
        stamp = _stamp(folder)
        run = load(folder)
        live = None if run.info.finished is not None else (f"/stamp/{quote(relative)}", stamp)
        return page.render([run], paths=[str(folder)], script="/plotly.js", live=live)

    def _index(self, names: list[str]) -> str:
        rows = []
        for name in names:
            try:
                run = load(self.run_folder(name))
                of = run.info.settings.total_steps
                state = "finished" if run.info.finished is not None else "not finished"
                steps = f"{run.info.cost.committed:,}" + ("" if of is None else f" of {of:,}")
            except ValueError as error:  # a journal that is empty, foreign or damaged
                state, steps = str(error), ""
            link = f'<a href="/run/{quote(name)}">{escape(name)}</a>'
            rows.append(f"<tr><td>{link}</td><td>{steps}</td><td class=long>{escape(state)}</td></tr>")
        inner = "<p>No run was found in this folder yet.</p>"
        if rows:
            inner = "<table><thead><tr><th>run</th><th>steps trained</th><th>state</th></tr></thead>"
            inner += f"<tbody>{''.join(rows)}</tbody></table>"
        if len(names) > 1:
            inner += f'<p><a href="/compare">Compare the first {min(len(names), MAX_COMPARED)}</a></p>'
        return page.plain_document("autolrs runs", f"<h1>Runs</h1><section>{inner}</section>", refresh=5)


def _stamp(folder: Path) -> str:
    found = (folder / NAME).stat()
    return f"{found.st_size}-{found.st_mtime_ns}"


class _Handler(BaseHTTPRequestHandler):
    server: ReportServer
    server_version, sys_version = "autolrs", ""

    def do_GET(self) -> None:
        self._send(*self._respond())

    do_HEAD = do_GET  # noqa: N815

    def _respond(self) -> tuple[HTTPStatus, str, str]:
        port = self.server.server_port
        if self.headers.get("Host") not in (f"127.0.0.1:{port}", f"localhost:{port}"):
            return HTTPStatus.FORBIDDEN, "text/plain", "this server answers to 127.0.0.1 and localhost only\n"
        try:
            return HTTPStatus.OK, *self.server.answer(unquote(urlsplit(self.path).path))
        except NotHereError as error:
            return HTTPStatus.NOT_FOUND, "text/plain", f"{error}\n"
        except (ValueError, OSError, ImportError) as error:
            return HTTPStatus.INTERNAL_SERVER_ERROR, "text/plain", f"{error}\n"

    def _send(self, status: HTTPStatus, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cache-Control", "max-age=3600" if kind == "text/javascript" else "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _refuse(self) -> None:
        self.send_response(HTTPStatus.METHOD_NOT_ALLOWED)
        self.send_header("Allow", "GET, HEAD")
        self.send_header("Content-Length", "0")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True

    do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = _refuse  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:
        """Requests are no news."""
