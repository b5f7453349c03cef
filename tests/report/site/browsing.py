"""Chromium, a published folder served to it, and what goes wrong in its tabs."""

from __future__ import annotations

import functools
import http.server
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from support import PATIENCE, unavailable
from workload_pages import read_data as read_data

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
#: How long Playwright waits, ms.
WAIT = 1e3 * PATIENCE
HOW_TO = (
    "get one with `apt-get install chromium` (Debian's package) "
    "or `playwright install chromium`"
)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError:
        unavailable("no Playwright: pip install 'hpml-plugins[test]'")
    names = ("chromium", "chromium-browser", "google-chrome")
    system = next((path for path in map(shutil.which, names) if path), None)
    with sync_playwright() as playwright:
        try:
            # Without a system's browser Playwright's own is tried.
            started = playwright.chromium.launch(
                executable_path=system, args=ARGUMENTS, timeout=WAIT
            )
        except Error as error:
            unavailable(f"no Chromium that starts ({str(error).splitlines()[0]}); {HOW_TO}")
        yield _PatientBrowser(started)
        started.close()


class _PatientBrowser:
    """Chromium, whose tabs wait as long as other tests do: Playwright waits 30 s."""

    def __init__(self, browser: Any) -> None:
        self._browser = browser

    def new_context(self, **options: Any) -> Any:
        context = self._browser.new_context(**options)
        context.set_default_timeout(WAIT)
        return context

    def new_page(self) -> Any:
        page = self._browser.new_page()
        page.context.set_default_timeout(WAIT)
        return page


class _Server(http.server.ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        pass  # a browser that goes on before a file is all there


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@dataclass
class Site:
    """A served site, a tab on it, and what went wrong in that tab."""

    address: str
    tab: Any
    troubles: list[str] = field(default_factory=list)
    loading: set[Any] = field(default_factory=set)

    def open(self, path: str) -> Any:
        """The tab with this page once nothing is being loaded. Playwright's "networkidle" takes
        half a second more."""
        self.tab.goto(f"{self.address}/{path}", wait_until="load")
        quiet = 0
        while quiet < 3:
            self.tab.wait_for_timeout(25)
            quiet = 0 if self.loading else quiet + 1
        return self.tab


@contextmanager
def served(folder: Path, browser: Any, **context_options: Any) -> Iterator[Site]:
    """The folder on a port of this machine, and a tab in a context of its own."""
    server = _Server(
        ("127.0.0.1", 0), functools.partial(QuietHandler, directory=str(folder))
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_address[1]}"
    context = browser.new_context(
        viewport={"width": 1280, "height": 800}, **context_options
    )
    made = Site(address, context.new_page())
    _watch(made)
    try:
        yield made
    except Exception as error:
        error.add_note(f"what went wrong in the tab: {made.troubles}")
        raise
    finally:
        context.close()
        server.shutdown()
        server.server_close()


def _watch(site: Site) -> None:
    def route(way: Any) -> None:
        if way.request.url.startswith(site.address + "/"):
            way.continue_()
        else:
            site.troubles.append(f"another host: {way.request.url}")
            way.abort()

    def answered(response: Any) -> None:
        if response.status >= 400:
            site.troubles.append(f"{response.status}: {response.url}")

    def failed(request: Any) -> None:
        site.loading.discard(request)
        # Leaving a page cancels what it still loads, the icon mostly: that is no fault of the page.
        if request.failure != "net::ERR_ABORTED":
            site.troubles.append(f"failed: {request.url} ({request.failure})")

    def said(message: Any) -> None:
        if message.type == "error":
            site.troubles.append(f"console: {message.text}")

    site.tab.route("**/*", route)
    site.tab.on("response", answered)
    site.tab.on("request", lambda request: site.loading.add(request))
    site.tab.on("requestfinished", lambda request: site.loading.discard(request))
    site.tab.on("requestfailed", failed)
    site.tab.on("pageerror", lambda error: site.troubles.append(f"error: {error}"))
    site.tab.on("console", said)
    site.tab.on(
        "dialog",
        lambda dialog: (
            site.troubles.append(f"dialog: {dialog.message}"),
            dialog.dismiss(),
        ),
    )
