"""Files from elsewhere and folders put in place: download, checksums, the cache, atomic writes.

Importing this costs next to nothing: what talks to a server or opens an archive is imported when it has to.
"""

from porter.files.folders import Replaceable, new_folder, recover_folder
from porter.files.hashing import Digests, LazyDigests, digest, digests
from porter.files.published_weights import Fetched, WeightsFile, cache_dir, fetch, is_published
from porter.files.regular_files import expect_plain, is_plain
from porter.files.whole import behind_links, expect_folder, write_whole
