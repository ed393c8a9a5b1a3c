"""Statistics of clusters in records of lives.

Everywhere in this folder, features are (B, F), finite; labels are (B,), clusters from 0, negative for noise; tick and
episode are of each record, (B,); points are what was clustered, (B, dimensions).
"""
