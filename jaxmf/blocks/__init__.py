"""Networks of mixture blocks: declare which variable is partitioned by which, get a sampler."""

from jaxmf.blocks.block import Block as Block
from jaxmf.blocks.network import Network as Network
