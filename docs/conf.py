"""How the documentation is built: `make docs`. Pages are Markdown, their code is executed."""

import os
import sys
import types
from importlib import metadata
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUILD = HERE / "_build"
sys.path[:0] = [str(HERE), str(HERE.parent)]

import benchmark_pages  # noqa: E402
import docstrings  # noqa: E402
import page_runs  # noqa: E402
from sphinx.util import logging  # noqa: E402

LOGGER = logging.getLogger(__name__)

project = "jaxmf"
author = "The jaxmf authors"
copyright = "The jaxmf authors"
version = release = metadata.version("jaxmf")

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"jaxmf {version}"
html_static_path = ["_static"]
html_css_files = ["jaxmf.css"]
html_show_sourcelink = False
# The pages hold no address of another server but this one, which typesets formulas in the reader's
# browser; the build needs no network.
mathjax_path = "https://cdn.jsdelivr.net/npm/mathjax@3/es5/tex-mml-chtml.js"

myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

# --- executed code: an error in a cell, or anything on its stderr such as a warning of a run that
# has not converged, is an error of the build; what was executed is kept until the page changes.
nb_execution_mode = "cache"
nb_execution_cache_path = str(BUILD / "executed")
nb_execution_timeout = 600  # a cell, on a machine that is busy
nb_output_stderr = "error"
nb_merge_streams = True
nb_number_source_lines = False

# --- docstrings
autodoc_member_order = "bysource"
# what an answer is made of when it is shown; readers have to_pandas, to_xarray and print
autodoc_default_options = {"exclude-members": "coordinates, variables, lines, footer"}
autodoc_typehints = "none"
autodoc_preserve_defaults = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_use_param = True
napoleon_use_ivar = True
python_maximum_signature_line_length = 88
default_role = "literal"
# References out of docstrings to what has no page: other libraries, and the inner modules.
nitpick_ignore_regex = [("py:.*", ".*")]


def _prepare_kernels() -> None:
    """A profile of IPython for the pages: no progress bars, small sharp pictures."""
    startup = BUILD / "ipython" / "profile_default" / "startup"
    startup.mkdir(parents=True, exist_ok=True)
    (startup / "00-pages.py").write_text((HERE / "page_kernel.py").read_text())
    os.environ["IPYTHONDIR"] = str(BUILD / "ipython")
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    )


def _links_within_the_site(app: object, name: str, source: list[str]) -> None:
    """Files of the repository that are also pages are linked as pages."""
    pages = {"../SECURITY.md": "security.md", "../CHANGELOG.md": "changelog.md"}
    # the page has the part of it that users need
    source[0] = source[0].replace("[CONTRIBUTING.md](../../CONTRIBUTING.md)", "`CONTRIBUTING.md`")
    for path, page in pages.items():
        source[0] = source[0].replace(f"]({path})", f"]({page})")


def _measured_tables(app: object, name: str, source: list[str]) -> None:
    """Blocks ```{measured} with names of cases become tables of these rows of the results."""
    source[0] = benchmark_pages.with_tables(source[0], name, LOGGER.warning)


def _names_without_a_page(app: object, environment: object) -> None:
    """Every public name of the package has its entry in the reference."""
    import jaxmf

    # modules have a page of their own, with what is public in them
    names = {n for n in jaxmf.__all__ if not n.startswith("_") and not _is_module(jaxmf, n)}
    objects = environment.domaindata["py"]["objects"]
    for name in sorted(names - {n.removeprefix("jaxmf.") for n in objects}):
        LOGGER.warning("docs/api: jaxmf.%s has no entry; add it to one of these pages", name)


def _is_module(package: object, name: str) -> bool:
    return isinstance(getattr(package, name), types.ModuleType)


def _without_new(owner: type, name: str, *default: object) -> object:
    """`getattr`; classes show the signature of `__init__`, not the `__new__` before it."""
    return None if name == "__new__" else getattr(owner, name, *default)


def setup(app: object) -> None:
    """Called by sphinx."""
    _prepare_kernels()
    benchmark_pages.write(HERE.parent / "benchmarks" / "results", HERE / "benchmarks")
    app.add_config_value("pages_at_once", 2, "")
    app.connect("env-before-read-docs", page_runs.execute)
    app.connect("env-updated", _names_without_a_page)
    app.connect("source-read", _measured_tables)
    app.connect("source-read", _links_within_the_site)
    app.add_autodoc_attrgetter(type, _without_new)
    app.connect("autodoc-process-docstring", docstrings.as_restructured_text, priority=100)
