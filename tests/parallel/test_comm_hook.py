"""What is given to `register_comm_hook` of PyTorch for a function of the user's."""

from deliralike.backends.torch.distributed.comm_hooks import comm_hook


def test_a_function_gets_its_own_state_and_without_one_the_group():
    def hook(state, bucket): ...

    assert comm_hook(hook, {"rank": 2}, "the group") == ({"rank": 2}, hook)
    assert comm_hook(hook, None, "the group") == ("the group", hook)
