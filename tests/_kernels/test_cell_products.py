"""The kernel of sums over cells of rows, interpreted: its sums, and when it is used."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmf as mf
from jaxmf import row_shards
from jaxmf._kernels import cell_products
from jaxmf._kernels.cell_products import CellInput
from jaxmf.samplers.factors import layout, rows
from tests._kernels.test_token_draw import lowered_for_h100
from tests.samplers.test_factors import draw, problem


@pytest.mark.parametrize("num_entries", [3, 35, 67])
def test_its_sums_are_those_of_double_precision(num_entries):
    assert cell_products.largest_error(num_entries) < 1e-6


def test_targets_may_stand_as_cells_do():
    inputs = CellInput(*cell_products.trial(3, 0))
    as_cells = inputs._replace(cells=None, targets=inputs.targets[inputs.cells])
    expected = cell_products.sums(inputs, 2)
    np.testing.assert_array_equal(cell_products.sums(as_cells, 2), expected)


@pytest.mark.parametrize(
    ("num_entries", "pieces"), [(2, (16, 16)), (33, (32, 16)), (67, (64, 16)), (144, (128, 16))]
)
def test_vectors_are_taken_in_two_pieces(num_entries, pieces):
    assert cell_products.pieces(num_entries) == pieces


def without_further_shares(right):
    def twin(*args):
        shares, starts = right(*args)
        return shares, jnp.full_like(starts, starts[0])

    return twin


def with_the_lines_of_others(right):
    def twin(inputs, num_shared):
        return right(inputs._replace(table=jnp.roll(inputs.table, 1, axis=0)), num_shared)

    return twin


@pytest.mark.parametrize(
    ("part", "twin"),
    [("_in_shares", without_further_shares), ("sums", with_the_lines_of_others)],
)
def test_wrong_sums_are_found_out(part, twin, monkeypatch):
    monkeypatch.setattr(cell_products, part, twin(getattr(cell_products, part)))
    assert cell_products.largest_error(5) > 0.1


@pytest.mark.filterwarnings("ignore:The Pallas Triton backend:DeprecationWarning")
def test_it_lowers_for_cuda_to_two_calls(monkeypatch):
    inputs = CellInput(*cell_products.trial(66, 0))
    text = lowered_for_h100(lambda inputs: cell_products.sums(inputs, 65), inputs, monkeypatch)
    assert text.count("xla.gpu.triton") == 2


@pytest.mark.parametrize("shape", ["plain", "biases"])
def test_rows_are_drawn_as_without_it(shape, monkeypatch):
    setup = problem(shape)
    normals = jnp.asarray(np.random.default_rng(0).normal(size=setup["u"].shape))
    found = []
    for module in (layout, rows):
        monkeypatch.setattr(module, "is_sequential", lambda size: False)
    for is_used in (False, True):
        for module in (layout, rows):
            monkeypatch.setattr(
                module, "is_in_kernel", lambda size, is_used=is_used, **named: is_used
            )
        jaxpr_text = str(jax.make_jaxpr(lambda normals: draw(setup, normals)[0])(normals))
        assert ("cell_products" in jaxpr_text) == is_used
        (drawn, residuals), _ = draw(setup, normals)
        found.append((drawn, residuals.squares))
    for plain, in_kernel in zip(*found, strict=True):
        np.testing.assert_allclose(in_kernel, plain, rtol=2e-4, atol=2e-4)


def test_it_is_not_used_elsewhere_nor_for_longer_vectors(monkeypatch):
    assert "this is a cpu" in cell_products.trouble("cpu", 9)
    assert "143 entries at most" in cell_products.trouble("gpu", 145)
    monkeypatch.setattr(cell_products, "_tried", lambda platform, size: "")
    assert cell_products.trouble("gpu", 144) == ""
    with jax.enable_x64(True):
        assert "single precision" in cell_products.trouble("gpu", 144)
    monkeypatch.setattr(cell_products, "trouble", lambda platform, size: "it failed" * (size > 6))
    assert mf.BPMF(4).device_notes({}, {}, platform="gpu") == ()
    (note,) = mf.BPMF(9).device_notes({}, {}, platform="gpu")
    assert note == "sums over ratings were made without the kernel for GPUs: it failed"
    assert mf.BPMF(9).device_notes({}, {}, platform="cpu") == ()


def test_a_kernel_that_is_wrong_is_refused(monkeypatch):
    local_devices = jax.local_devices
    monkeypatch.setattr(jax, "local_devices", lambda *args, **named: local_devices())
    monkeypatch.setattr(cell_products, "_ROUNDING", 0.0)
    cell_products._tried.cache_clear()
    assert "its sums are wrong by" in cell_products.trouble("gpu", 4)
    cell_products._tried.cache_clear()


def test_outside_of_a_mesh_a_kernel_is_as_it_is():
    def kernel(values):
        return values

    assert row_shards.on_its_device(kernel) is kernel
