"""Weft from Python: files of an erasure-coded file system without a mount, and its erasure codes."""

import atexit as _atexit

from . import ec
from ._files import RawFile
from ._files import close_all as _close_all
from ._volume import DirEntry, Usage, Volume
from ._weft import __version__

__all__ = ["DirEntry", "RawFile", "Usage", "Volume", "__version__", "ec"]

# What was written and not synced is committed when the interpreter ends. Processes of
# multiprocessing end without running what atexit has: see _volume.py.
_atexit.register(_close_all)
