"""Durable files: atomic writes, locks, digests and resumable work."""

from loca.durable.files import CorruptDataError as CorruptDataError
from loca.durable.files import lock as lock
from loca.durable.files import sync as sync
from loca.durable.files import sync_tree as sync_tree
from loca.durable.files import write_atomically as write_atomically
from loca.durable.manifest import MANIFEST as MANIFEST
from loca.durable.manifest import Manifest as Manifest
from loca.durable.manifest import differences as differences
from loca.durable.manifest import is_started as is_started
from loca.durable.manifest import without_versions as without_versions
from loca.durable.manifest import write_request as write_request

__all__ = [
    "MANIFEST",
    "CorruptDataError",
    "Manifest",
    "differences",
    "is_started",
    "lock",
    "sync",
    "sync_tree",
    "without_versions",
    "write_atomically",
    "write_request",
]
