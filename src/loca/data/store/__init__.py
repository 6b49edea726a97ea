"""Stores: pairs in a Zarr group that is written piece by piece and checked bit by bit."""
