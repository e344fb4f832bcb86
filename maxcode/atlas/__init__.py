"""Convert and gate a list of architectures: what `maxcode atlas run | report | diff` do."""
