"""Programs compiled for an H100 that need not be there, and what they start."""

from __future__ import annotations

import re
from importlib import metadata
from typing import Any, NamedTuple

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

PLUGINS = ("jax-cuda12-plugin", "jax-cuda13-plugin")
# What the compiler asks of a device: the published figures of an H100 SXM.
H100 = """
gpu_device_info {
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  shared_memory_per_core: 233472
  threads_per_core_limit: 2048
  core_count: 132
  fpus_per_core: 128
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  memory_bandwidth: 3352320000000
  l2_cache_size: 52428800
  clock_rate_ghz: 1.98
  device_memory_size: 84942979072
  shared_memory_per_block_optin: 232448
  cuda_compute_capability { major: 9 }
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 8 }
device_description_str: "NVIDIA H100 80GB HBM3"
"""
_NO_LAUNCH = {
    "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "iota",
    "partition-id", "replica-id", "add-dependency", "opt-barrier", "domain", "async-done",
    "copy-done", "all-reduce-done",
}  # fmt: skip
_OPERATION = re.compile(r"^\s+(?:ROOT )?%?[\w.\-]+ = (?:\([^=]*?\)|\S+) ([\w\-]+)\(")
_HEADING = re.compile(r"^(ENTRY )?%?([\w.\-]+) .*\{\s*$")


class Compiled(NamedTuple):
    """What a compiled program starts and holds; loops of unknown length turn once."""

    launches: int
    rounds: int
    open_loops: int
    argument_bytes: int
    temporary_bytes: int
    num_short_products: int


def what_is_missing() -> str | None:
    """Why nothing can be compiled for CUDA here, in a sentence; None where it can."""
    for name in PLUGINS:
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
        if version == jax.__version__:
            return None
        return f"{name} {version} does not fit jax {jax.__version__}"
    return 'the plugin of JAX for CUDA is not installed (pip install "jax[cuda12]")'


def compile_for_h100(function: Any, *arguments: Any) -> Compiled:
    """Compiles a function of shapes for one H100."""
    from jax.experimental import topologies

    topology = topologies.get_topology_desc(platform="cuda", target_config=H100, topology="1x1x1")
    mesh = Mesh(topology.devices, ("device",))
    everywhere = NamedSharding(mesh, PartitionSpec())

    def shape(leaf: Any) -> jax.ShapeDtypeStruct:
        leaf = leaf if hasattr(leaf, "shape") else jax.numpy.asarray(leaf)
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=everywhere)

    # kernels in Pallas are lowered for the device of the mesh, from jax 0.12 on
    with (
        jax.default_matmul_precision("highest"),
        jax.sharding.use_abstract_mesh(mesh.abstract_mesh),
    ):
        lowered = jax.jit(function).trace(*jax.tree.map(shape, arguments)).lower()
    compiled = lowered.compile(compiler_options={"xla_gpu_autotune_level": 0})
    text, memory = compiled.as_text(), compiled.memory_analysis()
    launches, rounds, open_loops = count(text)
    return Compiled(
        launches,
        rounds,
        open_loops,
        memory.argument_size_in_bytes,
        memory.temp_size_in_bytes,
        num_short_products(text),
    )


def count(text: str) -> tuple[int, int, int]:
    """Launches, turns of loops and loops of unknown length of an optimised program."""
    computations, entry = _computations(text)
    return _walk(computations, entry)


def num_short_products(text: str) -> int:
    """Products of matrices that may be taken in fewer bits than their numbers have."""
    is_product = re.compile(r"\bdot\(|__cublas\$(?:gemm|lt)")
    products = filter(is_product.search, text.splitlines())
    return sum("{highest,highest}" not in line and "HIGHEST" not in line for line in products)


def _computations(text: str) -> tuple[dict[str, list[str]], str]:
    computations: dict[str, list[str]] = {}
    name, entry = None, ""
    for line in re.sub(r"/\*index=\d+\*/", "", text).splitlines():
        heading = _HEADING.match(line)
        if heading and not line.startswith(" ") and ("->" in line or heading.group(1)):
            name = heading.group(2)
            computations[name] = []
            entry = name if heading.group(1) else entry
        elif line.startswith("}"):
            name = None
        elif name and "=" in line:
            computations[name].append(line)
    return computations, entry


def _walk(computations: dict[str, list[str]], name: str) -> tuple[int, int, int]:
    total = (0, 0, 0)
    for line in computations.get(name, ()):
        operation = _OPERATION.match(line)
        if not operation:
            continue
        kind = operation.group(1)
        if kind == "while":
            found = _loop(computations, line)
        elif kind == "conditional":
            inside = re.findall(r"(?:true|false)_computation=%?([\w.\-]+)", line)
            if branches := re.search(r"branch_computations=\{([^}]*)\}", line):
                inside += [one.strip().lstrip("%") for one in branches.group(1).split(",")]
            found = max(_walk(computations, one) for one in inside)
        elif kind == "call":
            found = _walk(computations, _name(r"to_apply", line))
        else:
            found = (int(kind not in _NO_LAUNCH), 0, 0)
        total = tuple(a + b for a, b in zip(total, found, strict=True))
    return total


def _loop(computations: dict[str, list[str]], line: str) -> tuple[int, int, int]:
    trips = re.search(r'"known_trip_count":\{"n":"(\d+)"', line)
    body = _walk(computations, _name("body", line))
    condition = _walk(computations, _name("condition", line))
    turns = int(trips.group(1)) if trips else 1
    launches, rounds, open_loops = (turns * (a + b) for a, b in zip(body, condition, strict=True))
    return launches, rounds + turns, open_loops + (trips is None)


def _name(label: str, line: str) -> str:
    found = re.search(rf"{label}=%?([\w.\-]+)", line)
    assert found is not None
    return found.group(1)
