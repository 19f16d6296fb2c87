"""Groups of leukaemia samples from 200 genes, against the known types. Golub et al."""

from pathlib import Path

from benchmarks.tasks.sides import run


def prepare(folder: Path) -> None:
    import numpy as np
    import pandas as pd

    import jaxmf as mf

    samples = mf.datasets.golub()
    x = np.asarray(samples.data.values)
    most = np.argsort(-x.var(axis=1))[:200]
    index = [f"patient {n}" for n in range(38)]
    table = pd.DataFrame(x[most].T, index=index, columns=samples.data.row_names[most])
    table.to_csv(folder / "x.csv")
    pd.Series(samples.is_aml.astype(int)).to_csv(folder / "y.csv", index=False)


def jaxmf(folder: Path) -> dict[str, float]:
    import pandas as pd
    from sklearn.cluster import SpectralClustering
    from sklearn.metrics import adjusted_rand_score

    import jaxmf as mf

    table, kind = (
        pd.read_csv(f"{folder}/x.csv", index_col=0),
        pd.read_csv(f"{folder}/y.csv").squeeze(),
    )
    model = mf.BinaryMF(
        row_prior=mf.BetaBernoulli(1.0, 1.0, 4), column_prior=mf.BetaBernoulli(1.0, 1.0, 4)
    )
    post = mf.sample(
        model, table, num_warmup=200, num_samples=100, num_chains=2, seed=0, sweep="whole_rows"
    )
    together = post.cooccurrence()
    groups = SpectralClustering(2, affinity="precomputed", random_state=0).fit_predict(together)
    return {"ari": float(adjusted_rand_score(kind, groups))}


def sklearn(folder: Path) -> dict[str, float]:
    import pandas as pd
    from sklearn.cluster import SpectralCoclustering
    from sklearn.metrics import adjusted_rand_score

    table, kind = (
        pd.read_csv(f"{folder}/x.csv", index_col=0),
        pd.read_csv(f"{folder}/y.csv").squeeze(),
    )
    model = SpectralCoclustering(2, random_state=0).fit(table - table.values.min())
    return {"ari": float(adjusted_rand_score(kind, model.row_labels_))}


def nmf(folder: Path) -> dict[str, float]:
    import pandas as pd
    from sklearn.decomposition import NMF
    from sklearn.metrics import adjusted_rand_score

    table, kind = (
        pd.read_csv(f"{folder}/x.csv", index_col=0),
        pd.read_csv(f"{folder}/y.csv").squeeze(),
    )
    model = NMF(2, random_state=0, max_iter=1000)
    weights = model.fit_transform(table - table.values.min())
    return {"ari": float(adjusted_rand_score(kind, weights.argmax(1)))}


if __name__ == "__main__":
    run("genes", prepare, ("jaxmf", "sklearn", "nmf"))
