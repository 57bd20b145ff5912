"""What a run may be told: its types, their check, and the composing of YAML and command line."""
