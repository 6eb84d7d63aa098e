"""What the commands of `sglang-sweep` do beside running flows: read, print, show progress."""
