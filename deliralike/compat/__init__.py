"""Names that users of other libraries know, in terms of this one."""
