"""ResNet-18 as a user of each framework would write it by hand: the peer of our networks."""
