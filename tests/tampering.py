"""Changes of saved runs on purpose, with a right check sum, as an attacker would make it."""

import json
from contextlib import contextmanager
from pathlib import Path

from jaxmf.engine import manifest as manifests


@contextmanager
def changed(folder):
    """What the manifest of a folder says, to be changed; it is written back with its check sum."""
    path = next(Path(folder).glob("*.json"))
    content = json.loads(path.read_text())
    del content["sha256"]
    yield content
    path.write_text(json.dumps({**content, "sha256": manifests.check_sum(content)}))
