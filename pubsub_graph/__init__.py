"""Plans publish/subscribe overlays on Spark: DataFrames in, a verified plan out."""

__version__ = "0.3.0"
