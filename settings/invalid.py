"""What is wrong with what a person wrote; light, so that catching it costs no import."""


class InvalidSettings(Exception):
    """The settings are wrong: `faults` has a line each, `source` names the file."""

    def __init__(self, source: str, faults: list[str]) -> None:
        self.source = source
        self.faults = faults
        super().__init__("\n".join(f"{source}: {fault}" for fault in faults))
