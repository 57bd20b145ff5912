"""File access: everything that opens, writes, renames or loads a file is here."""
