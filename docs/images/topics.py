"""Draws the README's picture of topics: a map of what Python's own documentation is about.

Run it as `python docs/images/topics.py`; the picture lands beside it. The texts are the docstrings
of Python's standard library, so another Python draws a somewhat different map.
"""

import importlib
import inspect
import sys
from pathlib import Path

from sklearn.feature_extraction.text import CountVectorizer

import jaxmf as mf
from jaxmf.plot import png

NUM_TOPICS = 12
LEFT_OUT = {"antigravity", "this", "idlelib", "lib2to3", "test", "turtledemo", "tkinter"}


def docstrings() -> dict[str, str]:
    """Name -> docstring of modules, classes and functions, those of at least 20 words."""
    texts: dict[str, str] = {}
    for name in sorted(set(sys.stdlib_module_names) - LEFT_OUT):
        if name.startswith("_"):
            continue
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        found = [
            (name, module),
            *((f"{name}.{each}", value) for each, value in vars(module).items()),
        ]
        for title, value in found:
            if inspect.ismodule(value) or inspect.isclass(value) or inspect.isfunction(value):
                text = inspect.getdoc(value) or ""
                if len(text.split()) >= 20 and text not in texts.values():
                    texts[title] = text
    return texts


def main() -> None:
    """Read, fit, draw, save beside this file."""
    texts = docstrings()
    vectorizer = CountVectorizer(stop_words="english", min_df=5, token_pattern=r"[a-z]{3,}")
    tokens = mf.Tokens.from_texts(texts, vectorizer=vectorizer)
    post = mf.sample(mf.LDA(NUM_TOPICS), tokens, num_warmup=500, num_samples=200, seed=0)
    print(post.topics(n=6))
    figure = post.plot.topics()
    path = Path(__file__).with_suffix(".png")
    path.write_bytes(png(figure, dots_per_inch=90))
    print(path.name, len(texts), "texts")


if __name__ == "__main__":
    main()
