"""Flipped bits, changed digits, cuts and exchanged files: none may change a run in silence."""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.harness import Row
from benchmarks.robustness import fault_row
from benchmarks.robustness.saved import MODELS, QUICK_MODELS, Saved, outcome, saved_runs

SEED = 15
NUM_TRIALS = 3_000
NUM_QUICK = 240
KINDS = ("bit", "digit", "byte", "cut", "zeros", "exchange")


def damaged(generator: np.random.Generator, kind: str, content: bytes, other: bytes) -> bytes:
    """A file with one fault.

    Args:
        generator: chooses where.
        kind: one bit flipped; one digit changed (of text: a file without digits gets a bit);
            one byte changed; the end cut off; up to 64 bytes set to zero; the file of another run.
        content: the file.
        other: the file of the same name of the same run with another seed.
    """
    if kind == "exchange":
        return other
    if kind == "cut":
        return content[: generator.integers(0, len(content))]
    changed = bytearray(content)
    position = int(generator.integers(0, len(content)))
    if kind == "digit":
        digits = [i for i, byte in enumerate(content) if 48 <= byte <= 57]
        position = int(generator.choice(digits)) if digits else position
        changed[position] = 48 + (changed[position] - 48 + int(generator.integers(1, 10))) % 10
    elif kind == "byte":
        changed[position] ^= int(generator.integers(1, 256))
    elif kind == "zeros":
        stop = min(len(content), position + int(generator.integers(1, 65)))
        changed[position:stop] = bytes(stop - position)
    else:
        changed[position] ^= 1 << int(generator.integers(0, 8))
    return bytes(changed)


def trials(
    generator: np.random.Generator, saved: Saved, number: int
) -> Iterator[tuple[str, str, str, str]]:
    """File, kind of damage, outcome and words of so many trials, every second in the manifest."""
    manifest = next(name for name in saved.files if name.endswith(".json"))
    arrays = [name for name in saved.files if name != manifest]
    done = 0
    while done < number:
        name = manifest if done % 2 == 0 else arrays[done // 2 % len(arrays)]
        kind = KINDS[int(generator.integers(0, len(KINDS)))]
        content = damaged(generator, kind, saved.files[name], saved.other[name])
        if content == saved.files[name] or (kind == "exchange" and name == manifest):
            continue  # a manifest of another run names other files, or is that of the other run
        saved.restore()
        (saved.folder / name).write_bytes(content)
        yield name, kind, *outcome(saved)
        done += 1
    saved.restore()


def count(quick: bool, *, seed: int = SEED) -> tuple[Counter[str], int]:
    """Outcomes of all trials; what is a fault is printed as it is met."""
    generator = np.random.default_rng(seed)
    total: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        runs = saved_runs(Path(folder), QUICK_MODELS if quick else tuple(MODELS))
        number = -(-(NUM_QUICK if quick else NUM_TRIALS) // len(runs))
        for saved in runs:
            for name, kind, found, words in trials(generator, saved, number):
                total[found] += 1
                if found not in ("same", "refused"):
                    print(f"{saved.name} {name} {kind}: {found}: {words[:200]}", file=sys.stderr)
    return total, total.total()


def measure(quick: bool) -> list[Row]:
    """Faults of each kind in all trials."""
    total, number = count(quick)
    note = (
        f"bits, digits, bytes, cuts, zeros and files of other runs, half of them in manifests; "
        f"seed {SEED}; refused {total['refused']:,}, no difference {total['same']:,}"
    )
    # what this program counted before the mend, at full size
    before = {"silent": 260, "foreign": 50, "hang": 0}
    note += "; a96d6f3: of the same 3,000 (a search without exchanged files found 67 of 2,080)"
    return [
        fault_row(f"flips/{kind}", total[kind], number, before=figure, note=note)
        for kind, figure in before.items()
    ]
