"""Writing that a kill, a power cut or a full disk cannot leave half done: the one implementation of
it.
"""

from .clearing import REPLACED, clear_unfinished, is_unfinished, recover, remove_folder
from .disk import disk_errors, is_of_the_disk, naming, sync
from .single import UNFINISHED, whole_file, write_atomically, write_over
from .whole import make_folders, resumable_folder, whole_folder, write_together

__all__ = [
    "REPLACED",
    "UNFINISHED",
    "clear_unfinished",
    "disk_errors",
    "is_of_the_disk",
    "is_unfinished",
    "make_folders",
    "naming",
    "recover",
    "remove_folder",
    "resumable_folder",
    "sync",
    "whole_file",
    "whole_folder",
    "write_atomically",
    "write_over",
    "write_together",
]
