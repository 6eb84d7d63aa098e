"""Files of a host, part by part."""

from collections.abc import AsyncIterator

from tasks.hosts.host import Host

PART_BYTES = 4 << 20


async def parts_of(host: Host, path: str, offset: int = 0) -> AsyncIterator[bytes]:
    """Read a file to its end, which is behind the first part that isn't full.

    What is written meanwhile may be in it or not. No file is an empty one.
    """
    while part := await host.read(path, offset, PART_BYTES):
        yield part
        offset += len(part)
        if len(part) < PART_BYTES:
            return


async def whole(host: Host, path: str, offset: int = 0) -> bytes:
    """Read a file to its end."""
    return b"".join([part async for part in parts_of(host, path, offset)])
