"""Pure numpy, scipy and numba on arrays. Nothing here knows Spark."""
