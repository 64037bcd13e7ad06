"""Carriers: factories of Arrow functions that hand the rows of a partition to a kernel, each with its StructType."""
