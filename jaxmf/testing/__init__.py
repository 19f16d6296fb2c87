"""Tests for whoever adds a model, a kernel or a filter.

`check_model` tries anybody's model: its contracts, save and load, report, the joint distribution of
its sampler. `check_kernel` is the joint-distribution test that every kernel must pass;
`check_prior` the same with the likelihood switched off; `check_means` compares the averages of
many chains with exact values, and `check_filter` the evidence of many filters with the exact one.
`check_chain_rule` holds the conditionals of a prior against its density.
`enumerate_features` and `enumerate_partitions` list what exact values are sums over.

All of them share one false-alarm rate: a suite with at most `MAX_CHECKS` checks fails by chance
with probability at most `SUITE_FALSE_ALARM_RATE` for a fresh seed; one check is held at `LEVEL`,
divided among its statistics (Bonferroni).
"""

from jaxmf.testing.enumeration import FeatureClasses as FeatureClasses
from jaxmf.testing.enumeration import enumerate_features as enumerate_features
from jaxmf.testing.enumeration import enumerate_partitions as enumerate_partitions
from jaxmf.testing.kernels import check_filter as check_filter
from jaxmf.testing.kernels import check_kernel as check_kernel
from jaxmf.testing.kernels import check_means as check_means
from jaxmf.testing.kernels import check_prior as check_prior
from jaxmf.testing.models import ModelReport as ModelReport
from jaxmf.testing.models import check_model as check_model
from jaxmf.testing.priors import check_chain_rule as check_chain_rule
from jaxmf.testing.report import LEVEL as LEVEL
from jaxmf.testing.report import MAX_CHECKS as MAX_CHECKS
from jaxmf.testing.report import SUITE_FALSE_ALARM_RATE as SUITE_FALSE_ALARM_RATE
from jaxmf.testing.report import Comparison as Comparison
from jaxmf.testing.report import Report as Report
