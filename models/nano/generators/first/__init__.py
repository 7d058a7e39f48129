"""The first author."""
