"""A GRU over padded sentences, with a bag of words beside it."""
