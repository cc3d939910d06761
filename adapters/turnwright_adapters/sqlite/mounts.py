"""Where a file lies, where the system tells.

Rule: a database on a network mount is refused, because its locks lie; one in memory is gone when the power fails, and
does not say otherwise.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from turnwright.definition import Durability
from turnwright.errors import PortError

__all__ = ["durability_at", "filesystem_of", "refuse_network_mount"]

NETWORK: Final = frozenset(
    {"afs", "beegfs", "ceph", "cifs", "davfs", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "smb3", "smbfs"}
    | {"fuse.ceph", "fuse.davfs2", "fuse.glusterfs", "fuse.rclone", "fuse.s3fs", "fuse.smbnetfs", "fuse.sshfs"}
)
"""Filesystems on which processes of several hosts would meet, and on which WAL does not work."""

MEMORY: Final = frozenset({"ramfs", "tmpfs"})
"""Filesystems without a disk; `/tmp` may be one."""

MOUNTS: Final = Path("/proc/self/mountinfo")


def refuse_network_mount(path: Path, mounts: Path = MOUNTS) -> None:
    """Raise PortError if *path* lies on a filesystem that other hosts see too."""
    kind = _filesystem_at(path, mounts)
    if kind in NETWORK:
        raise PortError(
            f"{path} lies on a network mount ({kind}), where SQLite can lose what was acknowledged; use a local disk, "
            "or a store that is made for several hosts"
        )


def durability_at(path: Path, mounts: Path = MOUNTS) -> Durability:
    """What a file at *path* survives once it was synced."""
    return "process" if _filesystem_at(path, mounts) in MEMORY else "power"


def _filesystem_at(path: Path, mounts: Path) -> str:
    try:
        table = mounts.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""  # this system does not tell
    return filesystem_of(path, table)


def filesystem_of(path: Path, table: str) -> str:
    """The type of the filesystem that holds *path*, by a mountinfo *table*; empty if none does."""
    best, kind = -1, ""
    for line in table.splitlines():
        place, _, source = line.partition(" - ")
        point = Path(_unescaped(place.split(" ")[4]))
        # A later mount hides an earlier one at the same point.
        if (point == path or point in path.parents) and len(point.parts) >= best:
            best, kind = len(point.parts), source.split(" ")[0]
    return kind


def _unescaped(text: str) -> str:
    """The kernel writes blanks and backslashes as octal."""
    for sign in (" ", "\t", "\n", "\\"):
        text = text.replace(f"\\{ord(sign):03o}", sign)
    return text
