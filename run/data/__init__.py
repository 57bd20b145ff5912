"""The transitions that a run learns from.

- buffers.py: the replay buffer that the settings describe
- preloaded.py: the data that a run begins with; sources.py: the data sets and older runs that it is read from
- minari_writer.py: writes evaluation episodes as a data set
"""
