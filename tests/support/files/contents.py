"""What the tests of files share."""

import hashlib
from pathlib import Path

CONTENT = bytes(range(256)) * 4096
OTHER = bytes(reversed(CONTENT))
SHA256 = hashlib.sha256(CONTENT).hexdigest()
MD5 = hashlib.md5(CONTENT).hexdigest()


def left_over(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}
