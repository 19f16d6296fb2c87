"""What stands in traced programs."""

from jax.extend.core import jaxprs_in_params


def all_shapes(jaxpr):
    """The shapes of all arrays that a program makes, and those within it."""
    for equation in jaxpr.eqns:
        yield from (tuple(out.aval.shape) for out in equation.outvars)
        for within in jaxprs_in_params(equation.params):
            yield from all_shapes(getattr(within, "jaxpr", within))
