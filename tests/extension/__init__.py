"""A package of somebody else: it imports public names of jaxmf alone, and adds to them."""
