"""Why an optimizer's updates differ: known wrong conventions, tried one by one."""
from deliralike.conformance.explain.updates import Trace
def explain(trace: Trace): return None
def explain_schedule(a, b): return None
