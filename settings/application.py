"""The application's settings: from variables, a .env file and one TOML file, in this order.

Variables are `SGLANG_SWEEP_…`, nested with `__` (`SGLANG_SWEEP_HOSTS__BOX__ADDRESS=gpu-box`).
The TOML file is the one that SGLANG_SWEEP_CONFIG names, in the environment or in .env; otherwise
`sglang-sweep.toml` in the working directory; otherwise `~/.config/sglang-sweep/config.toml`.
"""

import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    DotEnvSettingsSource,
    EnvSettingsSource,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from settings.faults import describe
from settings.host import Host
from settings.invalid import InvalidSettings
from settings.nearest import suggest
from settings.quantities import Duration

PREFIX = "SGLANG_SWEEP_"
CONFIG_VARIABLE = f"{PREFIX}CONFIG"
_PREFIX = PREFIX.lower()


class Settings(BaseSettings):
    """What is the same for every sweep: where results go, which hosts there are."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_nested_delimiter="__",
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        allow_inf_nan=False,
    )

    store: str = "sweeps"
    """Folder in which every sweep's results are kept."""

    hosts: dict[str, Host] = Field(default_factory=dict)
    """The machines with GPUs by name; `local` is always there."""

    lease: Duration = 60.0
    """A server ends itself when nobody has renewed its lease for so long: whatever happens to us,
    the host is free again soon after. A connection that breaks is given up sooner."""

    lock_wait: Duration | None = None
    """How long to wait for a host that another sweep holds.

    When absent, a deployed run waits as long as it takes, and one by hand not at all.
    """

    api_key: SecretStr | None = None
    """Sent as bearer token to servers that are measured by `bench`."""

    @field_validator("store")
    @classmethod
    def _local(cls, store: str) -> str:
        """Refuse object storage: locks, claims and whole replacements need a file system."""
        if "://" in store:
            way_out = (
                "give a folder, and publish what is over: sglang-sweep export --format parquet"
            )
            raise ValueError(f"{store!r} is no folder, and sweeps are measured into one; {way_out}")
        return store

    def host(self, name: str) -> Host:
        """Look a host up. Raises `InvalidSettings` naming the nearest one that is configured."""
        known = {"local": Host(), **self.hosts}
        if name not in known:
            hint = suggest(name, known) or f"; there are {', '.join(sorted(known))}"
            fault = f"{name!r} is not configured{hint}"
            raise InvalidSettings("host", [f"{fault} (a [hosts.{name}] table would define it)"])
        return known[name]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where settings come from: source name to the nested values it gives, strongest first."""

    sources: tuple[tuple[str, Mapping[str, Any]], ...]

    def of(self, path: tuple[str, ...]) -> str:
        """The source of one value, by its key path."""
        for name, values in self.sources:
            if _lookup(values, path):
                return name
        return "default"


def load(folder: Path | None = None) -> tuple[Settings, Origin]:
    """Read the settings in force in a working directory, with where each comes from.

    Raises `InvalidSettings` with one line per fault.
    """
    folder = folder or Path.cwd()
    dotenv = _dotenv(folder / ".env")
    for place, variables in (("environment", os.environ), (".env", dotenv)):
        if faults := _misspelt(variables):
            raise InvalidSettings(place, faults)
    source = config_file(folder, os.environ.get(CONFIG_VARIABLE) or dotenv.get(CONFIG_VARIABLE))
    origin = Origin(
        (
            ("environment", _Variables("environment", os.environ)()),
            (".env", _Variables(".env", dotenv)()),
            (str(source), _toml(source) if source else {}),
        )
    )
    try:
        return _merged(origin), origin
    except ValidationError as error:
        raise InvalidSettings("settings", _with_origin(error, origin)) from error


def config_file(folder: Path, named: str | None) -> Path | None:
    """The TOML file in force. Raises `InvalidSettings` where the variable names none."""
    if named:
        path = folder / os.path.expanduser(named)
        if not path.is_file():
            raise InvalidSettings(CONFIG_VARIABLE, [f"{named!r} is not a file"])
        return path
    home = Path(os.path.expanduser("~/.config/sglang-sweep/config.toml"))
    return next((path for path in (folder / "sglang-sweep.toml", home) if path.is_file()), None)


class _Variables(EnvSettingsSource):
    """Settings from variables; those without our prefix are somebody else's."""

    def __init__(self, place: str, variables: Mapping[str, str]) -> None:
        self.place = place
        self.variables = {name.lower(): value for name, value in variables.items()}
        super().__init__(Settings)

    def _load_env_vars(self) -> Mapping[str, str]:
        return self.variables

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: str) -> object:
        """Read a list or table. Raises `InvalidSettings` without the value: it may be a secret."""
        try:
            return json.loads(value)
        except (ValueError, RecursionError) as error:
            if not isinstance(field, FieldInfo):
                raise ValueError("not JSON, so it is text") from error
            end = field_name.lower()
            name = next(n for n in self.variables if n.startswith(_PREFIX) and n.endswith(end))
            fault = f'{name.upper()}: not JSON; write a list as ["a", "b"], a table as {{"a": 1}}'
            raise InvalidSettings(self.place, [fault]) from error


def _merged(origin: Origin) -> Settings:
    class Fixed(Settings):
        """The settings, from sources that were read already."""

        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return tuple(
                InitSettingsSource(settings_cls, init_kwargs=dict(values))
                for _, values in origin.sources
            )

    return Settings.model_construct(**dict(Fixed()))


def _dotenv(path: Path) -> Mapping[str, str]:
    """The variables of a .env file, by their names in capitals."""
    if not path.is_file():
        return {}
    try:
        variables = DotEnvSettingsSource(Settings, env_file=path).env_vars
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSettings(str(path), [f"not readable: {error}"]) from error
    return {name.upper(): value for name, value in variables.items() if value is not None}


def _toml(path: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidSettings(str(path), [f"not readable as TOML: {error}"]) from error


def _misspelt(variables: Mapping[str, str]) -> list[str]:
    """Variables with our prefix that name no setting."""
    known = {name.upper(): name for name in (*Settings.model_fields, "config", "mark")}
    faults = []
    for variable in sorted(variables):
        if variable.upper().startswith(PREFIX):
            field = variable.upper().removeprefix(PREFIX).partition("__")[0]
            if field not in known:
                faults.append(f"{variable}: no such setting{suggest(field, known)}")
    return faults


def _with_origin(error: ValidationError, origin: Origin) -> list[str]:
    return [f"{line} [from {origin.of(path)}]" for path, line in describe(error, Settings)]


def _lookup(values: object, path: tuple[str, ...]) -> bool:
    for key in path:
        if not isinstance(values, Mapping) or key not in values:
            return False
        values = values[key]
    return True
