"""Hidden causes of 20 yes-or-no questions, a tenth of 250 x 20 answers missing; simulated."""

from pathlib import Path

from benchmarks.tasks.sides import run


def prepare(folder: Path) -> None:
    import numpy as np
    import pandas as pd

    generator = np.random.default_rng(1)
    acts_on = np.arange(20) % 4 == np.arange(4)[:, None]
    acts_on[[0, 1, 2, 3], [1, 2, 7, 12]] = True
    active = (generator.random((250, 4)) < 0.3).astype(int)
    answers = (generator.random((250, 20)) < 1 - 0.97 * 0.15 ** (active @ acts_on)).astype(float)
    names = [f"person {n}" for n in range(250)], [f"question {n}" for n in range(20)]
    truth = pd.DataFrame(answers, index=names[0], columns=names[1])
    truth.to_csv(folder / "truth.csv")
    truth.mask(generator.random(truth.shape) < 0.1).to_csv(folder / "answers.csv")


def jaxmf(folder: Path) -> dict[str, float]:
    import numpy as np
    import pandas as pd

    import jaxmf as mf

    table, truth = (
        pd.read_csv(f"{folder}/{name}.csv", index_col=0) for name in ("answers", "truth")
    )
    post = mf.sample(
        mf.NoisyOrIBP(), table.T, num_warmup=500, num_samples=500, num_chains=2, seed=0
    )
    answers = post.predict()
    right = (answers.mean > 0.5) == truth.T.values[answers.rows, answers.columns]
    return {"accuracy": float(np.mean(right)), "num_features": post.num_features().mean}


def means(folder: Path) -> dict[str, float]:
    import numpy as np
    import pandas as pd

    table, truth = (
        pd.read_csv(f"{folder}/{name}.csv", index_col=0) for name in ("answers", "truth")
    )
    hidden = table.isna().values
    full = table.fillna(table.mean()).values
    return {"accuracy": float(np.mean((full > 0.5)[hidden] == truth.values[hidden]))}


def factor_analyzer(folder: Path) -> dict[str, float]:
    import numpy as np
    import pandas as pd
    from factor_analyzer import FactorAnalyzer

    table, truth = (
        pd.read_csv(f"{folder}/{name}.csv", index_col=0) for name in ("answers", "truth")
    )
    hidden, full = table.isna().values, table.fillna(table.mean())
    model = FactorAnalyzer(n_factors=4, rotation="varimax").fit(full)
    rebuilt = model.transform(full) @ model.loadings_.T * full.std().values + full.mean().values
    return {"accuracy": float(np.mean((rebuilt > 0.5)[hidden] == truth.values[hidden]))}


def sklearn(folder: Path) -> dict[str, float]:
    import numpy as np
    import pandas as pd
    from sklearn.decomposition import FactorAnalysis

    table, truth = (
        pd.read_csv(f"{folder}/{name}.csv", index_col=0) for name in ("answers", "truth")
    )
    hidden, full = table.isna().values, table.fillna(table.mean()).values
    model = FactorAnalysis(4, rotation="varimax").fit(full)
    rebuilt = model.transform(full) @ model.components_ + full.mean(0)
    return {"accuracy": float(np.mean((rebuilt > 0.5)[hidden] == truth.values[hidden]))}


if __name__ == "__main__":
    run("questionnaire", prepare, ("jaxmf", "means", "factor_analyzer", "sklearn"))
