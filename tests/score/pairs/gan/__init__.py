"""A generator and a discriminator, and one step of both losses."""
