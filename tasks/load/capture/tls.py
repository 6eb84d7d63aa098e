"""Read and greet through TLS, where the clock at the read must do for the arrival."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from .reading import READ_BYTES, own_stamp, take
from .stream import EOF, REFUSED, RESET, Connection

if TYPE_CHECKING:
    from .loop import Loop
    from .reading import Reader

_IN, _OUT = 1, 4  # EPOLLIN and EPOLLOUT


def speak_tls(loop: Loop) -> None:
    """Have a loop greet and read through TLS; certificates are verified as the system does."""
    context = ssl.create_default_context()
    loop.read = tls_reader(loop)
    loop.shake_hands = lambda connection: shake_hands(loop, connection, context)


def tls_reader(loop: Loop) -> Reader:
    """The function that reads all that came: what is decrypted already wakes nobody."""

    def read(connection: Connection) -> None:
        if not connection.connected:
            loop.writable(connection)  # the other side's part of the handshake
        while connection.fd in loop.connections:
            try:
                piece = connection.sock.recv(READ_BYTES)
            except ssl.SSLWantReadError:
                return
            except OSError as error:
                loop.lose(connection, RESET, error.strerror or str(error))
                return
            stream = connection.stream
            if not piece or stream is None:
                loop.lose(connection, EOF, "the server closed the connection")
                return
            loop.last_stamp = stamp = own_stamp(loop)
            if stream.rest:
                piece, stream.rest = stream.rest + piece, b""
            take(loop, connection, piece, stamp)

    return read


def shake_hands(loop: Loop, connection: Connection, context: ssl.SSLContext) -> bool:
    """Go on with the TLS handshake; False while it isn't over, or where it failed."""
    sock = connection.sock
    try:
        if not isinstance(sock, ssl.SSLSocket):
            sock = context.wrap_socket(
                sock, server_hostname=loop.host, do_handshake_on_connect=False
            )
            connection.sock = sock
        sock.do_handshake()
    except ssl.SSLWantReadError:
        loop.poll.modify(connection.fd, _IN)
    except ssl.SSLWantWriteError:
        loop.poll.modify(connection.fd, _IN | _OUT)
    except OSError as error:
        reason = getattr(error, "verify_message", "") or getattr(error, "reason", "")
        loop.lose(connection, REFUSED, f"TLS: {reason or error.strerror or error}")
    else:
        return True
    return False
