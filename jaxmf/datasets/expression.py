"""Gene expression: the leukemia samples of Golub et al."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from jaxmf.data import Dense
from jaxmf.data.names import object_array
from jaxmf.datasets import parsers
from jaxmf.datasets.cache import Prepared, Recipe, Source, read


class Expression(NamedTuple):
    """Expression levels of genes in samples.

    Attributes:
        data: (genes, samples), ids of rows the accession numbers.
        descriptions: (genes,) texts.
        is_aml: (samples,) bool, acute myeloid (True) or lymphoblastic (False) leukemia.
    """

    data: Dense
    descriptions: np.ndarray
    is_aml: np.ndarray


def _build_golub(paths: Mapping[str, Path]) -> Prepared:
    levels = np.loadtxt(paths["golub.tsv"], delimiter="\t", ndmin=2)
    genes = parsers.lines_of(parsers.open_bytes(paths["gnames.tsv"]))
    classes = np.loadtxt(paths["classes.tsv"], ndmin=1)
    parsers.fields(genes, "\t", 3)
    if levels.shape != (len(genes), len(classes)):
        raise ValueError(
            f"golub.tsv: has shape {levels.shape}, the other files tell of {len(genes)} genes and "
            f"{len(classes)} samples"
        )
    arrays: dict[str, np.ndarray] = {
        "x": levels.astype(np.float32),
        "y_aml": classes.astype(np.uint8),
    }
    return Prepared(arrays, {"genes.txt": genes})


def _from_r(file: str, thing: str) -> Source:
    return Source(
        file,
        instructions="It is part of the R package multtest (Bioconductor). In R: "
        f'library(multtest); data(golub); write.table({thing}, "{file}", sep="\\t", quote=FALSE, '
        "row.names=FALSE, col.names=FALSE)",
    )


GOLUB = Recipe(
    "golub",
    "golub.npz",
    ("genes.txt",),
    (
        _from_r("golub.tsv", "golub"),
        _from_r("gnames.tsv", "golub.gnames"),
        _from_r("classes.tsv", "golub.cl"),
    ),
    _build_golub,
)


def golub() -> Expression:
    """Leukemia gene expression of Golub et al.: 3051 genes, 38 samples, standardised by sample.

    Raises:
        FileNotFoundError: it is not in the folder of data sets; says how to get it.

    Reference:
        Golub et al. (1999), Molecular classification of cancer, Science 286.
    """
    arrays, texts = read(GOLUB)
    genes = parsers.fields(texts["genes.txt"], "\t", 3)
    return Expression(
        Dense.from_array(arrays["x"], row_names=object_array([gene[2] for gene in genes])),
        object_array([gene[1] for gene in genes]),
        arrays["y_aml"].astype(bool),
    )
