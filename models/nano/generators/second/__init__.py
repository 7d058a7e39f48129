"""The second author, who shares no wording with the first."""
