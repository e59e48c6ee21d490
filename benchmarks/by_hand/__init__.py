"""ResNet-18 as a user of each framework would write it by hand: what our networks are compared
with.
"""
