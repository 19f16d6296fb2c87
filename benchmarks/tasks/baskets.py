"""A file of baskets, no Python: the item that was left out of 1,000 baskets. Groceries."""

from pathlib import Path

from benchmarks.tasks.sides import run


def prepare(folder: Path) -> None:
    import csv
    import json

    import numpy as np

    import jaxmf as mf

    data, generator = mf.datasets.groceries(), np.random.default_rng(4)
    ones = data.to_scipy().tolil().rows
    baskets = [[data.column_names[column] for column in row] for row in ones]
    large = [row for row, basket in enumerate(baskets) if len(basket) >= 4]
    rows = generator.choice(large, 1000, replace=False)
    left = {f"basket {n}": baskets[n].pop(generator.integers(len(baskets[n]))) for n in rows}
    with (folder / "baskets.csv").open("w", newline="") as file:
        csv.writer(file).writerows([f"basket {n}", *basket] for n, basket in enumerate(baskets))
    (folder / "left.json").write_text(json.dumps(left))


def jaxmf(folder: Path) -> dict[str, float]:
    import json
    import subprocess
    import sys

    import pandas as pd

    program = "import sys; from jaxmf.cli import run; sys.exit(run(sys.argv[1:]))"
    for command in (
        "fit sparse-binary baskets.csv --form baskets --out run",
        "recommend run -o best.csv",
        "report run -o report.html",
    ):
        subprocess.run([sys.executable, "-c", program, *command.split()], cwd=folder, check=True)
    left = json.loads((folder / "left.json").read_text())
    best = pd.read_csv(folder / "best.csv")
    hits = best[best["column"] == best["row"].map(left)]
    return {"hit10": len(hits) / len(left)}


def implicit(folder: Path) -> dict[str, float]:
    import json

    import numpy as np
    import scipy.sparse as sp
    from implicit.als import AlternatingLeastSquares

    lines = [line.split(",") for line in (folder / "baskets.csv").read_text().splitlines()]
    names = [line[0] for line in lines]
    items = sorted({item for line in lines for item in line[1:]})
    number = {item: j for j, item in enumerate(items)}
    i, j = np.array([(n, number[item]) for n, line in enumerate(lines) for item in line[1:]]).T
    data = sp.csr_matrix((np.ones(len(i), "float32"), (i, j)), (len(names), len(items)))
    model = AlternatingLeastSquares(factors=20, random_state=0, num_threads=1)
    model.fit(data, show_progress=False)
    left = json.loads((folder / "left.json").read_text())
    rows = [n for n, name in enumerate(names) if name in left]
    best, _ = model.recommend(rows, data[rows], N=10)
    return {
        "hit10": float(
            np.mean(
                [left[names[n]] in [items[k] for k in b] for n, b in zip(rows, best, strict=True)]
            )
        )
    }


if __name__ == "__main__":
    run("baskets", prepare, ("jaxmf", "implicit"))
