"""Pictures of a posterior, reached as ``post.plot.features()`` and so on.

Each returns a matplotlib Figure outside pyplot: a notebook shows it, ``savefig`` writes it.
"""

from jaxmf.plot.network import network_picture as network_picture
from jaxmf.plot.panels import check_image_shape as check_image_shape
from jaxmf.plot.panels import held_out_picture as held_out_picture
from jaxmf.plot.plots import Plots as Plots
from jaxmf.plot.style import png as png
