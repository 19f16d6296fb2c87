"""The joint-distribution test of a setup: its prior, its data and what of them is compared."""

from jaxmf.testing import check_kernel
from tests import FAST_COMPILE


def check_setup(setup, kernel, *, key, **options):
    """`check_kernel` by the methods of a setup; it serves as the method `check` of one."""
    return check_kernel(
        kernel,
        sample_prior=setup.sample_prior,
        simulate=setup.simulate,
        statistics=setup.statistics,
        key=key,
        **{"compiler_options": FAST_COMPILE} | options,
    )
