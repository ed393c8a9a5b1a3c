"""How large a dump will be, roughly, before it is made."""

from activation_store.schema import DumpMetadata

# Measured on dumps of trained policies, without activations: vitals, neighbours, tiles, actions, probabilities.
_OTHER_BYTES = {"json": 3500, "parquet": 120}
# A number of an activation: as text with its comma, or compressed, which gains little.
_NUMBER_BYTES = {("json", "float32"): 12.0, ("parquet", "float32"): 3.5, ("parquet", "float16"): 1.75}
_COLUMN_BYTES = {"json": 8, "parquet": 2}


def expected_record_bytes(metadata: DumpMetadata) -> int:
    """Return how many bytes a record will take on the disk, give or take a third."""
    numbers = sum(metadata.layers.values())
    columns = sum(column.width or 1 for column in metadata.columns.values())
    form = metadata.format
    layers = round(numbers * _NUMBER_BYTES[form, metadata.precision])
    return _OTHER_BYTES[form] + layers + columns * _COLUMN_BYTES[form]
