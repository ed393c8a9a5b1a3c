"""A rough estimate of a dump's size before it is written."""

from activation_store.schema import DumpMetadata

# Measured on dumps of trained policies, without activations: vitals, neighbours, tiles, actions, probabilities.
_OTHER_BYTES = {"json": 3500, "parquet": 120}
# One number of an activation: as text with its comma, or compressed, which saves little.
_NUMBER_BYTES = {("json", "float32"): 12.0, ("parquet", "float32"): 3.5, ("parquet", "float16"): 1.75}
_COLUMN_BYTES = {"json": 8, "parquet": 2}


def expected_record_bytes(metadata: DumpMetadata) -> int:
    """Return the bytes that a record will take on disk, accurate to about a third."""
    numbers = sum(metadata.layers.values())
    columns = sum(column.width or 1 for column in metadata.columns.values())
    form = metadata.format
    layers = round(numbers * _NUMBER_BYTES[form, metadata.precision])
    return _OTHER_BYTES[form] + layers + columns * _COLUMN_BYTES[form]
