"""What `SparseBinaryMF` refuses, in words."""

from __future__ import annotations

from typing import Any

from jaxmf.variational import checks

UPDATES = ("block", "partial_newton", "gradient")


def settings(model: Any) -> dict[str, Any]:
    """The settings of a model, classes made objects.

    Raises:
      TypeError, ValueError: see `SparseBinaryMF`.
    """
    found = checks.cell_settings(model)
    checks.check_per_factor(model, "row_mean", positive=False)
    checks.check_per_factor(model, "row_variance", positive=True)
    if model.row_variance is None and model.column_variance is None:
        raise ValueError(
            "row_variance and column_variance are both None: a factor may be scaled up on one side "
            "and down on the other, so learn one of them and hold the other, such as "
            "row_variance=1.0"
        )
    return found


def options(model: Any, given: dict[str, Any]) -> None:
    """Refuses options of the ascent.

    Raises:
      TypeError, ValueError: in words.
    """
    del model
    checks.check_stopping(given)
    update = given["update"]
    if update not in UPDATES:
        raise ValueError(f"update must be one of {', '.join(UPDATES)}, got {update!r}")
    if given["optimizer"] is not None and update not in ("partial_newton", "gradient"):
        raise ValueError(
            "optimizer is given, but block updates have none; use update='gradient', or "
            "update='partial_newton' for one that takes the curvature"
        )
    if given["batch_size"] is not None:
        checks.check_count("batch_size", given["batch_size"])
        if update != "block":
            raise ValueError(
                f"batch_size is given, but batches have block updates, not update={update!r}; "
                "leave one of them out"
            )
    if not isinstance(given["decay"], (int, float)) or not 0.5 < given["decay"] <= 1:
        raise ValueError(
            "decay must lie above 1/2 and be at most 1, where decaying steps end in a minimum, "
            f"got {given['decay']!r}"
        )
