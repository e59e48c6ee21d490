"""A network with batch norms, whose ports bring replicas of their own."""
