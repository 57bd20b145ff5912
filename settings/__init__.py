"""The settings of a run: how the YAML and the command line become checked values.

compose.py: Hydra's composition, its errors as one line. hydra_patch.py: what is changed in Hydra.
schema.py: the keys of config/train.yaml with their types, and the check of a whole configuration.
signatures.py: reads the types of parameters, and holds values against them. types.py: the types themselves.
validated.py: the same check for constructors that are called from Python. keys.py: nested and dotted keys, and the
explanations in the YAML's comments. plain_yaml.py: reads YAML of untrusted folders. operating_system.py: what Linux,
macOS and Windows do differently.
"""
