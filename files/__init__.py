"""File access: everything that opens, writes, renames or loads a file is here.

- reading.py: no link followed, regular files only, none larger than its kind may be
- tensors.py: the same for files of torch
- writing.py: files and folders that appear when they are complete
- locks.py: locks on open files
- links.py: refuses a run's folder with links in it, before libraries with their own way to files work there
"""
