"""How several processes of a program are launched, and how each of them joins the others."""
