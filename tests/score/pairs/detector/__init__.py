"""A detector with two levels of features, shared heads and anchors."""
