"""A machine with GPUs, as the settings file describes it."""

from pydantic import Field, SecretStr

from settings.quantities import Duration
from settings.strict import Strict
from settings.variables import Env


class Host(Strict):
    """One host. Without `address` it is this machine."""

    address: str | None = None
    """An alias of ~/.ssh/config, or a name or address; absent for this machine."""

    passphrase: SecretStr | None = None
    """Opens the private keys that are encrypted; not needed where an SSH agent holds them."""

    connect_timeout: Duration = 10.0
    """How long one attempt to log in over SSH may take."""

    reconnect_patience: Duration = 45.0
    """How long a broken connection is mended before the work that needs it fails; below `lease`,
    which ends the server."""

    tunnel: bool = True
    """Reach the servers of an SSH host through the connection; false: straight at their address."""

    server_address: str | None = None
    """Where its servers answer, such as a container's own address, if not at the host's."""

    peers: tuple[str, ...] = ()
    """Hosts of the settings that run the further nodes of a server with `nnodes`, in this order."""

    cluster_address: str | None = None
    """Where its peers reach it (the host in `--dist-init-addr`); they need it, others don't."""

    prefix: tuple[str, ...] = ()
    """How to get into the container, if any: ["pct", "exec", "129", "--"]."""

    stacks: tuple[str, ...] = Field(default=("python3",), min_length=1)
    """Python interpreters that can run the server, in order of preference."""

    launch: tuple[str, ...] = Field(default=("-m", "sglang.launch_server"), min_length=1)
    """What the interpreter runs to serve."""

    devices: str = "/dev/nvidia*"
    """The device files whose holders are to be ended before a launch (a glob)."""

    dedicated: bool = False
    """Nobody else's work runs here: cleaning may end any holder of the GPUs."""

    never_end: tuple[str, ...] = ()
    """Names of more programs that cleaning leaves alone, and isn't stopped by: ["our-exporter"]."""

    run_folder: str = "~/.sglang-sweep"
    """Where logs, pids and scripts of the launches live on the host."""

    nvidia_smi: tuple[str, ...] = Field(default=("nvidia-smi",), min_length=1)
    """The command that tells about the GPUs."""

    env: Env = Field(default_factory=dict)
    """Variables set for everything that runs on this host; a sweep's own win."""

    port: int = Field(default=30000, ge=1, le=65000)
    """The first port to try for a server; the next free one is taken."""

    @property
    def listen_address(self) -> str:
        """Where its servers must listen to be reached: loopback, or every address."""
        reached_from_outside = self.server_address is not None or not self.tunnel
        return "0.0.0.0" if reached_from_outside else "127.0.0.1"
