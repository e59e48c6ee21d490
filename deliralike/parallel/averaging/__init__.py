"""Training in several processes with averages of parameters: local SGD and DASO."""
