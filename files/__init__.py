"""File access: everything that opens, writes, renames or loads a file is here.

- reading.py: follows no link; opens only regular files, and none above the size limit of its kind
- tensors.py: the same for torch's files
- writing.py: files and folders that appear when they are complete
- locks.py: locks on open files
- links.py: refuses a run's folder that contains links, before libraries that open files themselves use it
"""
