"""DataFrames of other libraries than pandas, by narwhals: polars, pyarrow, duckdb, modin, cudf."""

from __future__ import annotations

from typing import Any

_LIBRARIES = frozenset(("cudf", "dask", "duckdb", "ibis", "modin", "polars", "pyarrow", "pyspark"))


def as_pandas(x: object) -> Any:
    """A DataFrame of another library as one of pandas; anything else as it is.

    Missing numbers become NaN, other missing cells None; decimals are floats, categories stay so.

    Raises ImportError: pandas is not installed.
    """
    if type(x).__module__.partition(".")[0] not in _LIBRARIES:
        return x
    import narwhals as nw

    frame = nw.from_native(x, pass_through=True)
    if isinstance(frame, nw.LazyFrame):
        frame = frame.collect()
    if not isinstance(frame, nw.DataFrame):
        return x
    try:
        import pandas as pd
    except ImportError:
        raise ImportError(
            f"a DataFrame of {type(x).__module__.partition('.')[0]} is read through pandas; "
            "pip install 'jaxmf[data]'"
        ) from None
    columns: dict[str, object] = {}
    for name in frame.columns:
        column = frame[name]
        if column.dtype == nw.Decimal:
            column = column.cast(nw.Float64)
        is_level = column.dtype in (nw.Categorical, nw.Enum)
        columns[name] = pd.Categorical(column.to_numpy()) if is_level else column.to_numpy()
    return pd.DataFrame(columns, columns=frame.columns, copy=False)
