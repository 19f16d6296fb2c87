"""Executes the pages that changed, several side by side, before sphinx reads them one by one.

What a page printed is kept where myst_nb looks for it, `nb_execution_cache_path`; myst_nb then has
nothing to execute. A page that fails is left to it: it executes the page again and says why.
"""

import asyncio
import time
from pathlib import Path

from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn
from myst_nb.core.read import create_nb_reader
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from sphinx.util import logging

LOGGER = logging.getLogger(__name__)
FAILURES = (CellExecutionError, CellTimeoutError, DeadKernelError)


def execute(app: object, environment: object, names: list[str]) -> None:
    """Handler of `env-before-read-docs`: the pages that sphinx is about to read."""
    cache = get_cache(app.config.nb_execution_cache_path)
    pages = {}
    for name in names:
        path = Path(environment.doc2path(name))
        notebook = _notebook(environment, path)
        if notebook is not None and not _is_kept(cache, notebook):
            pages[path] = notebook
    seconds = asyncio.run(
        _execute_all(pages, app.config.pages_at_once, app.config.nb_execution_timeout)
    )
    for path, taken in seconds.items():
        LOGGER.info("%s executed in %.1f s", path.name, taken)
        page = cache.add_nb_to_project(
            str(path), read_data={"type": "plugin", "name": "myst_nb_md"}
        )
        bundle = CacheBundleIn(pages[path], page.uri, data={"execution_seconds": taken})
        cache.cache_notebook_bundle(bundle, check_validity=False, overwrite=True)


def _notebook(environment: object, path: Path) -> object | None:
    """A page with code as a notebook, as myst_nb reads it; None for a page without."""
    text = path.read_text(encoding="utf-8")
    reader = create_nb_reader(str(path), environment.myst_config, environment.mystnb_config, text)
    return None if reader is None else reader.read(text)


def _is_kept(cache: object, notebook: object) -> bool:
    try:
        cache.match_cache_notebook(notebook)
    except KeyError:
        return False
    return True


async def _execute_all(pages: dict, at_once: int, timeout: int) -> dict[Path, float]:
    """Fills the notebooks with their outputs; the seconds of those that did not fail."""
    room = asyncio.Semaphore(at_once)
    seconds = {}

    async def execute_one(path: Path, notebook: object) -> None:
        async with room:
            start = time.monotonic()
            folder = {"metadata": {"path": str(path.parent)}}
            # times in the cells would make it another notebook than the one myst_nb looks for
            client = NotebookClient(
                notebook, timeout=timeout, resources=folder, record_timing=False
            )
            try:
                await client.async_execute()
            except FAILURES as error:
                LOGGER.info("%s: %s", path.name, error)
            else:
                seconds[path] = time.monotonic() - start

    await asyncio.gather(*(execute_one(*page) for page in pages.items()))
    return seconds
