"""A classifier of sentences: embedding, LSTM, last state, two linear layers."""
