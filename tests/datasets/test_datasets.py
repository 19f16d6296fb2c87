"""Data sets: generators, parsers on small files in the official formats, and the real sets."""

import gzip
import struct
import zipfile
from pathlib import Path

import jax
import numpy as np
import pytest

from jaxmf import datasets
from jaxmf.datasets import baskets, cache, documents, expression, images, parsers, ratings

# --- generated -----------------------------------------------------------------------------------


def test_section_4_2():
    ours = datasets.section_4_2(0)
    assert ours.x.shape == (100, 36)
    assert ours.z.dtype == bool
    assert set(np.unique(ours.y)) == {0, 1}
    assert ours.x.dtype == jax.numpy.result_type(float)
    residual = ours.x - ours.z @ ours.y
    # 3600 Gaussian numbers: their standard deviation has a relative standard error of 0.012
    assert abs(residual.std() / 0.5 - 1) < 5 * 0.012
    assert abs(ours.z.mean() - 0.5) < 5 * 0.5 / np.sqrt(400)
    same = datasets.section_4_2(jax.random.key(0))
    np.testing.assert_array_equal(ours.x, same.x)
    assert not np.array_equal(ours.x, datasets.section_4_2(1).x)


def test_section_4_2_sizes_and_errors():
    ours = datasets.section_4_2(3, num_rows=7, noise_scale=0)
    np.testing.assert_allclose(ours.x, ours.z @ ours.y)
    assert len(ours.x) == 7
    with pytest.raises(ValueError, match="num_rows"):
        datasets.section_4_2(0, num_rows=0)
    with pytest.raises(ValueError, match="noise_scale"):
        datasets.section_4_2(0, noise_scale=-1)


def test_digits():
    pytest.importorskip("sklearn")
    ours = datasets.digits()
    assert ours.train.shape == (1797, 64)
    assert ours.train.max() == 16
    assert len(ours.train_labels) == 1797


# --- official formats ----------------------------------------------------------------------------


def idx_bytes(array):
    head = b"\x00\x00\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}i", *array.shape)
    return head + array.astype(np.uint8).tobytes()


def test_idx():
    array = np.arange(24).reshape(2, 3, 4)
    np.testing.assert_array_equal(parsers.idx(idx_bytes(array)), array)
    with pytest.raises(ValueError, match="cut"):
        parsers.idx(idx_bytes(array)[:-1])
    with pytest.raises(ValueError, match="no IDX"):
        parsers.idx(b"PK\x03\x04")


def test_bag_of_words_and_lda_c():
    counts = np.asarray([[2, 0, 1], [0, 0, 0], [0, 3, 0]])
    uci = parsers.bag_of_words(["3", "3", "3", "1 3 1", "1 1 2", "3 2 3"])
    blei = parsers.lda_c(["2 2:1 0:2", "0", "1 1:3"], 3)
    for arrays in (uci, blei):
        np.testing.assert_array_equal(cache.sparse_counts(arrays).toarray(), counts)
    with pytest.raises(ValueError, match="announces 4"):
        parsers.bag_of_words(["3", "3", "4", "1 3 1"])
    with pytest.raises(ValueError, match="line 1"):
        parsers.lda_c(["2 0:1"], 3)
    with pytest.raises(ValueError, match=r"outside 0\.\.1"):
        parsers.lda_c(["1 2:1"], 2)


def test_transactions():
    assert parsers.transactions(["1 3 ", "", "2 2"], first=1) == [[0, 2], [], [1]]
    with pytest.raises(ValueError, match="line 2"):
        parsers.transactions(["1", "0"], first=1)
    with pytest.raises(ValueError, match="line 1"):
        parsers.transactions(["4"], first=1, num_items=3)


def test_zip_digits():
    line = "6.0000 " + "-1.0000 " * 255 + "0.631 "
    labels, levels = parsers.zip_digits([line])
    assert labels.tolist() == [6]
    assert levels[0, [0, 255]].tolist() == [-1000, 631]
    with pytest.raises(ValueError, match="256 pixels"):
        parsers.zip_digits(["1 2 3"])


def zipped(path: Path, folder: str, files: dict[str, str], encoding="latin-1") -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(f"{folder}/{name}", content.encode(encoding))
    return path


def test_movielens_100k_files(tmp_path, monkeypatch):
    files = {
        "u.data": "1\t2\t5\t100\n2\t1\t3\t50\n2\t2\t4\t60\n",
        "u.item": "1|Fünf (1995)|01-Jan-1995||http://x|1|0\n2|Six|||http://y|0|1\n",
        "u.user": "1|24|M|artist|85711\n2|53|F|doctor|T8H1N\n",
        "u.genre": "unknown|0\nAction|1\n\n",
        "u.occupation": "artist\ndoctor\n",
        **{f"{split}.test": "2\t1\t3\t50\n" for split in ("u1", "u2", "u3", "u4", "u5", "ua")},
        "ub.test": "1\t2\t5\t100\n2\t2\t4\t60\n",
    }
    path = zipped(tmp_path / "ml-100k.zip", "ml-100k", files)
    install(monkeypatch, tmp_path, ratings.ML_100K, {"ml-100k.zip": path})
    without_hashes(monkeypatch, ratings.ML_100K)
    ours = datasets.movielens_100k()
    np.testing.assert_array_equal(ours.data.to_scipy().toarray(), [[0, 5], [3, 4]])
    assert ours.test["u1"].tolist() == [False, True, False]
    assert ours.test["ub"].tolist() == [True, False, True]
    assert ours.titles.tolist() == ["Fünf (1995)", "Six"]
    assert ours.genre_names.tolist() == ["unknown", "Action"]
    assert ours.genres.tolist() == [[True, False], [False, True]]
    assert ours.user_occupation.tolist() == ["artist", "doctor"]
    assert ours.user_zip.tolist() == ["85711", "T8H1N"]
    assert ours.user_is_male.tolist() == [True, False]
    assert ours.time.tolist() == [100, 50, 60]
    assert ours.data.row_positions([2]).tolist() == [1]
    users, items = ours.user_features(), ours.item_features()
    assert users.labels == ("age", "sex=F", "sex=M", "occupation=artist", "occupation=doctor")
    assert users.match([2, 1]).to_array().tolist() == [[1, 1, 0, 0, 1], [-1, 0, 1, 1, 0]]
    assert items.labels == ("year", "genre.unknown", "genre.Action")
    assert items.to_array().tolist() == [[0, 1, 0], [0, 0, 1]]  # one year, and one movie without


def test_movielens_1m_files(tmp_path, monkeypatch):
    lines = [f"{user}::10::{user % 5 + 1}::{100 - user}" for user in range(1, 7)]
    lines.append("1::30::2::5")
    files = {
        "ratings.dat": "\n".join(lines) + "\n",
        "movies.dat": "10::Été (1999)::Comedy|War\n20::None::Drama\n30::B::Children's\n",
        "users.dat": "".join(f"{u}::{'MF'[u % 2]}::25::{u}::0{u}\n" for u in range(1, 7)),
    }
    path = zipped(tmp_path / "ml-1m.zip", "ml-1m", files)
    install(monkeypatch, tmp_path, ratings.ML_1M, {"ml-1m.zip": path})
    without_hashes(monkeypatch, ratings.ML_1M)
    ours = datasets.movielens_1m()
    assert ours.data.shape == (6, 2)
    assert ours.data.column_names.tolist() == [10, 30]
    assert ours.titles.tolist() == ["Été (1999)", "B"]
    assert ours.genre_names[ours.genres[0]].tolist() == ["Comedy", "War"]
    assert ours.genre_names[ours.genres[1]].tolist() == ["Children's"]
    assert ours.time.tolist() == [1, 1, 1, 1, 1, 1, 0]  # movie 30 is rated once
    assert ours.user_is_male.tolist() == [False, True, False, True, False, True]


def test_time_ranks_follow_time_then_file():
    table = np.asarray([[1, m, 3, t] for m, t in [(1, 9), (2, 4), (3, 4), (4, 1)]])
    assert ratings._time_ranks(table, least=1).tolist() == [4, 2, 3, 1]


# --- the folder, fetching ------------------------------------------------------------------------


def install(monkeypatch, folder: Path, recipe: cache.Recipe, files: dict[str, Path]) -> None:
    """A folder of data sets into which the official files can be fetched."""
    root = folder / "cache"
    root.mkdir(exist_ok=True)
    monkeypatch.setenv(cache.VARIABLE, str(root))
    urls = {source.url: files[source.file] for source in recipe.sources}

    def download(url, path):
        path.write_bytes(urls[url].read_bytes())

    monkeypatch.setattr(cache, "download", download)


def without_hashes(monkeypatch, *recipes: cache.Recipe) -> None:
    """Small files of the tests take the place of the official ones."""
    for module in (baskets, documents, images, ratings):
        for name, value in list(vars(module).items()):
            if any(value is recipe for recipe in recipes):
                sources = tuple(source._replace(md5=None) for source in value.sources)
                monkeypatch.setattr(module, name, value._replace(sources=sources, sha256=None))


def packed(path: Path, content: bytes) -> Path:
    path.write_bytes(gzip.compress(content))
    return path


def test_fetched_once_then_read(tmp_path, monkeypatch):
    path = tmp_path / "official"
    path.write_text("0 1 2 \n2 5 \n")
    install(monkeypatch, tmp_path, baskets.RETAIL, {"retail.dat": path})
    without_hashes(monkeypatch, baskets.RETAIL)
    ours = datasets.retail()
    assert ours.shape == (2, 6)
    assert ours.num_ones == 5
    assert (tmp_path / "cache" / "retail" / "retail.npz").exists()

    def fail(url, path):
        raise OSError("no network")

    monkeypatch.setattr(cache, "download", fail)
    assert datasets.retail().fingerprint() == ours.fingerprint()
    with pytest.raises(FileNotFoundError, match=r"T10I4D100K\.dat.*fimi.*no network.*by hand"):
        datasets.t10i4d100k()


def test_wrong_hash_is_found(tmp_path, monkeypatch):
    path = packed(tmp_path / "official", idx_bytes(np.zeros((1, 28, 28))))
    files = {source.file: path for source in images.MNIST.sources}
    install(monkeypatch, tmp_path, images.MNIST, files)
    with pytest.raises(ValueError, match=r"train-images.*md5.*f68b3c2d"):
        datasets.mnist()


def test_other_content_than_the_official_is_refused_and_not_kept(tmp_path, monkeypatch):
    path = tmp_path / "official"
    path.write_text("0 1 2 \n2 5 \n")
    install(monkeypatch, tmp_path, baskets.RETAIL, {"retail.dat": path})
    with pytest.raises(ValueError, match=r"retail\.dat are not the official files.*sha256.*39d08"):
        datasets.retail()
    assert not (tmp_path / "cache" / "retail" / "retail.npz").exists()


def test_every_download_is_by_https_and_has_a_check_sum():
    recipes = [
        value
        for module in (baskets, documents, expression, images, ratings)
        for value in vars(module).values()
        if isinstance(value, cache.Recipe)
    ]
    fetched = [(recipe, s) for recipe in recipes for s in recipe.sources if s.url]
    assert len(fetched) >= 10
    for recipe, source in fetched:
        assert source.url.startswith("https://")
        assert recipe.sha256 or source.md5, f"{source.url} has no check sum"


def test_mnist_and_usps_files(tmp_path, monkeypatch):
    pixels = np.arange(2 * 784).reshape(2, 28, 28) % 256
    files = {
        file: packed(tmp_path / file, idx_bytes(pixels if "images" in file else np.asarray([3, 7])))
        for file in (source.file for source in images.MNIST.sources)
    }
    install(monkeypatch, tmp_path, images.MNIST, files)
    without_hashes(monkeypatch, images.MNIST)
    ours = datasets.mnist()
    np.testing.assert_array_equal(ours.test.reshape(2, 28, 28), pixels)
    assert ours.train_labels.tolist() == [3, 7]

    line = ("4.0000 " + "0.5 " * 256 + "\n").encode()
    files = {f"zip.{part}.gz": packed(tmp_path / part, line) for part in ("train", "test")}
    install(monkeypatch, tmp_path, images.USPS, files)
    without_hashes(monkeypatch, images.USPS)
    assert datasets.usps().test.tolist() == [[0.5] * 256]


def test_kos_files(tmp_path, monkeypatch):
    files = {
        "docword.kos.txt.gz": packed(tmp_path / "d", b"2\n3\n2\n1 1 2\n2 3 1\n"),
        "vocab.kos.txt": tmp_path / "v",
    }
    files["vocab.kos.txt"].write_text("aarp\nabandon\nzeal\n")
    install(monkeypatch, tmp_path, documents.KOS, files)
    without_hashes(monkeypatch, documents.KOS)
    ours = datasets.kos()
    np.testing.assert_array_equal(ours.counts.toarray(), [[2, 0, 0], [0, 0, 1]])
    assert ours.vocabulary.tolist() == ["aarp", "abandon", "zeal"]
    assert ours.train is None
    assert ours.tokens().num_tokens == 3


def test_nips_files(tmp_path, monkeypatch):
    files = {
        "corpus": "2 0:18 2:1\n1 1:4\n",
        "vocab": "network = 0 = 18 1 \nmodel = 1 = 4 1\nlearning = 2 = 1 1\n",
        "docs": "On ±\nSecond\n",
        "authors": "1\n0 1 \n",
        "authors.key": "Abbott_L \nBishop_C\n",
        "vols": "0\n12\n",
        "vols.key": "NIPS 0, 1987\n",
        "labels": "1\n0\n",
        "labels.key": "Vision\nControl\n",
    }
    path = zipped(
        tmp_path / "nips.zip", "corpus-example", {f"nips.{k}": v for k, v in files.items()}
    )
    install(monkeypatch, tmp_path, documents.NIPS12, {documents.NIPS12.sources[0].file: path})
    without_hashes(monkeypatch, documents.NIPS12)
    ours = datasets.nips12()
    np.testing.assert_array_equal(ours.counts.toarray(), [[18, 0, 1], [0, 4, 0]])
    np.testing.assert_array_equal(ours.authors.toarray(), [[0, 1], [1, 1]])
    assert ours.author_names.tolist() == ["Abbott_L", "Bishop_C"]
    assert ours.years.tolist() == [1987, 1999]
    assert ours.sections.tolist() == ["Control", "Vision"]
    assert ours.titles.tolist() == ["On ±", "Second"]


def test_sets_whose_files_are_put_there_by_hand(tmp_path, monkeypatch):
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path))
    by_hand = {
        documents.REUTERS: {
            "reuters.ldac": "1 0:2\n1 1:1\n",
            "reuters.tokens": "church\npope\n",
            "reuters.titles": "0 UK \n1 GERMANY\n",
        },
        baskets.GROCERIES: {
            "baskets.csv": "tea,milk\nmilk\n",
            "items.tsv": "milk\tdairy\tfood\ntea\thot\tfood\n",
        },
        expression.GOLUB: {
            "golub.tsv": "1.5\t-0.5\n0\t1\n2\t2\n",
            "gnames.tsv": "".join(f"{k}\tgene {k}\tAC{k}\n" for k in (36, 37, 38)),
            "classes.tsv": "0\n1\n",
        },
    }
    for recipe, files in by_hand.items():
        with pytest.raises(FileNotFoundError, match=r"not there and cannot be fetched.*(pip|In R)"):
            cache.read(recipe)
        for name, content in files.items():
            (tmp_path / recipe.name / name).write_text(content)
    assert datasets.reuters().titles.tolist() == ["0 UK", "1 GERMANY"]
    assert datasets.reuters().tokens().num_tokens == 3
    shop = datasets.groceries()
    np.testing.assert_array_equal(shop.to_scipy().toarray(), [[1, 1], [1, 0]])
    assert shop.column_positions("tea").tolist() == [1]
    genes = datasets.golub()
    np.testing.assert_array_equal(genes.data.values, [[1.5, -0.5], [0, 1], [2, 2]])
    assert genes.data.row_names.tolist() == ["AC36", "AC37", "AC38"]
    assert genes.is_aml.tolist() == [False, True]


def test_files_that_disagree_leave_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path))
    folder = tmp_path / "groceries"
    folder.mkdir()
    (folder / "baskets.csv").write_text("tea,bread\n")
    (folder / "items.tsv").write_text("tea\thot\tfood\n")
    with pytest.raises(ValueError, match=r"line 1: 'bread' is not in items\.tsv"):
        datasets.groceries()
    assert {path.name for path in folder.iterdir()} == {"baskets.csv", "items.tsv"}


def test_folder_errors_say_what_to_do(tmp_path, monkeypatch):
    monkeypatch.delenv(cache.VARIABLE, raising=False)
    with pytest.raises(FileNotFoundError, match=r"JAXMF_DATA is not set.*make an empty folder"):
        datasets.usps()
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "nowhere"))
    with pytest.raises(FileNotFoundError, match="is no folder"):
        datasets.usps()
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"bars\.npz.*section_4_2"):
        datasets.cambridge_bars()


# --- the real sets -------------------------------------------------------------------------------

PUBLISHED = {
    "mnist": lambda d: (d.train.shape, d.test.shape, round(float(d.train.mean()) / 255, 4)),
    "usps": lambda d: (d.train.shape, d.test.shape, np.bincount(d.test_labels)[:2].tolist()),
    "golub": lambda d: (d.data.shape, int(d.is_aml.sum())),
    "groceries": lambda d: (d.shape, d.num_ones, d.column_names[0]),
    "retail": lambda d: (d.shape, d.num_ones),
    "t10i4d100k": lambda d: (d.shape, d.num_ones),
    "kos": lambda d: (d.counts.shape, int(d.counts.sum())),
    "nips12": lambda d: (d.counts.shape, int(d.counts.sum()), d.authors.nnz, int(d.years.max())),
    "reuters": lambda d: (d.counts.shape, int(d.counts.sum())),
    "movielens_100k": lambda d: (d.data.shape, d.data.num_entries, int(d.test["ua"].sum())),
    "movielens_1m": lambda d: (d.data.shape, d.data.num_entries),
    "cambridge_bars": lambda d: (d.x.shape, d.z.shape),
}
EXPECTED = {
    "mnist": ((60000, 784), (10000, 784), 0.1307),
    "usps": ((7291, 256), (2007, 256), [359, 264]),
    "golub": ((3051, 38), 11),
    "groceries": ((9835, 169), 43367, "frankfurter"),
    "retail": ((88162, 16470), 908576),
    "t10i4d100k": ((100000, 1000), 1010228),
    "kos": ((3430, 6906), 467714),
    "nips12": ((1740, 13649), 2301375, 3990, 1999),
    "reuters": ((395, 4258), 84010),
    "movielens_100k": ((943, 1682), 100000, 9430),
    "movielens_1m": ((6040, 3706), 1000209),
    "cambridge_bars": ((1000, 36), (1000, 4)),
}


@pytest.mark.parametrize(
    "recipe",
    [baskets.RETAIL, baskets.T10I4D100K, documents.KOS, documents.NIPS12, images.USPS],
    ids=lambda recipe: recipe.name,
)
def test_real_set_has_the_content_of_its_check_sum(recipe, data_dir):
    prepared = cache.read(recipe)
    arrays = {name: x for name, x in prepared.arrays.items() if name != "train_4f13"}
    assert cache.content_digest(prepared._replace(arrays=arrays)) == recipe.sha256


@pytest.mark.parametrize("name", PUBLISHED)
def test_real_set_has_its_published_size(name, data_dir):
    assert PUBLISHED[name](getattr(datasets, name)()) == EXPECTED[name]


def test_bars_are_features_plus_noise(data_dir):
    ours = datasets.cambridge_bars()
    residual = ours.x - ours.z @ ours.y
    residual -= residual.mean()
    assert abs(residual.std() - 0.2) < 0.01
    np.testing.assert_array_equal(ours.y, datasets.section_4_2(0).y)


def test_movielens_5_fold_splits_partition_the_ratings(data_dir):
    test = datasets.movielens_100k().test
    folds = np.sum([test[f"u{k}"] for k in range(1, 6)], axis=0)
    assert (folds == 1).all()
