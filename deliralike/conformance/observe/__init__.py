"""What networks compute: their calls recorded, forced, and found again in another network.

A unit is a network or a block of one with its inputs. Its taps are the calls made while it runs: of
blocks, and of functions of `nn` between them; what happens inside of a tapped call belongs to that
call. Three runs of a unit:

- `record` notes the inputs and outputs of each tap, and of the unit;
- `cotangents` gives the gradient of the unit's scalar with respect to each of them;
- `force` gives every tap the inputs that another network had, and its output to what follows.
"""
