"""What the tests of experiments share."""

from deliralike.training import Callback


class StopAt(Callback):
    """An end that comes after some steps."""

    def __init__(self, step, error=KeyboardInterrupt):
        self.step, self.error = step, error

    def on_step(self, run, step):
        if run.step == self.step:
            raise self.error
