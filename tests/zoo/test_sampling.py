"""Noise is added and taken away as diffusers does it, the same on every backend."""

import re

import numpy as np
import pytest
import torch
from diffusers import DDIMScheduler, DDPMScheduler
from diffusers.schedulers import scheduling_ddim, scheduling_ddpm

from deliralike import zoo
from deliralike.errors import SettingError
from deliralike.zoo.generative.sampling import NoiseSchedule, portable_noise, sample
from tests.zoo.cases.generative import CONDITIONED, UNET

SCHEDULES = {
    "linear": {},
    "scaled_linear": {"beta_start": 0.00085, "beta_end": 0.012},
}


def theirs(kind, schedule):
    """A scheduler of diffusers with our settings, its table in double precision."""
    scheduler = kind(
        num_train_timesteps=schedule.num_train_timesteps,
        beta_start=schedule.beta_start,
        beta_end=schedule.beta_end,
        beta_schedule=schedule.beta_schedule,
        clip_sample=schedule.clip_sample_range is not None,
        clip_sample_range=schedule.clip_sample_range or 1.0,
    )
    single = scheduler.alphas_cumprod
    scheduler.alphas_cumprod = torch.from_numpy(schedule.alphas_cumprod)
    torch.testing.assert_close(
        single.double(), scheduler.alphas_cumprod, rtol=1e-3, atol=1e-6
    )
    return scheduler


@pytest.mark.parametrize("name", SCHEDULES)
def test_tables_are_diffusers_up_to_their_single_precision(name):
    theirs(DDPMScheduler, NoiseSchedule(beta_schedule=name, **SCHEDULES[name]))


def test_noise_is_added_as_diffusers_does_it_on_every_backend(backend):
    schedule = NoiseSchedule()
    scheduler = theirs(DDPMScheduler, schedule)
    draw = np.random.default_rng(0)
    x, noise, time = (
        draw.normal(size=(3, 2, 4)),
        draw.normal(size=(3, 2, 4)),
        np.array([0, 7, 999]),
    )
    arrays = [backend.array(array, "float64") for array in (x, noise)] + [
        backend.array(time)
    ]
    noisy = backend.numpy(schedule.add_noise(backend.nn, *arrays))
    tensors = [torch.from_numpy(array) for array in (x, noise, time)]
    np.testing.assert_allclose(noisy, scheduler.add_noise(*tensors).numpy(), rtol=1e-12)


METHODS = {
    "ddpm": (DDPMScheduler, scheduling_ddpm, {}),
    "ddim": (DDIMScheduler, scheduling_ddim, {}),
    "ddim with noise": (DDIMScheduler, scheduling_ddim, {"eta": 0.7}),
}


@pytest.mark.parametrize("method", METHODS)
def test_steps_are_diffusers(method, monkeypatch):
    kind, module, options = METHODS[method]
    schedule = NoiseSchedule(50, clip_sample_range=0.8)
    network = zoo.build(
        "diffusion_model_unet", backend="torch", dtype="float64", **UNCONDITIONED
    )
    network = with_outputs(network)
    came = sample(
        network, SHAPE, schedule, method=method[:4], steps=4, seed=5, **options
    )
    steps = iter(range(1, 5))
    monkeypatch.setattr(
        module, "randn_tensor", lambda *_, **__: torch.from_numpy(noise_of(next(steps)))
    )
    scheduler = theirs(kind, schedule)
    scheduler.set_timesteps(4)
    assert scheduler.timesteps.tolist() == schedule.timesteps(4)
    x = torch.from_numpy(noise_of(0))
    for time in scheduler.timesteps:
        with torch.no_grad():
            output = network(x, time.repeat(2))
        x = scheduler.step(output, int(time), x, **options).prev_sample
    torch.testing.assert_close(came, x, rtol=1e-9, atol=1e-10)


SHAPE = (2, 2, 4, 6)


def noise_of(step):
    return portable_noise(5, step, 0, SHAPE)


def with_outputs(network):
    """A network whose last layers do not start at zero."""
    generator = np.random.default_rng(0)
    state = network.neutral_state()
    for name, value in state.items():
        if not value.any():
            state[name] = 0.1 * generator.standard_normal(value.shape)
    network.load_neutral_state(state)
    return network


UNCONDITIONED = UNET | {"in_channels": 2, "out_channels": 2}
LABELLED = UNCONDITIONED | CONDITIONED


def made(backend_name, first, count, method):
    """Pictures of a conditioned network."""
    network = zoo.build(
        "diffusion_model_unet", backend=backend_name, dtype="float64", **LABELLED
    )
    network = with_outputs(network)
    draw = np.random.default_rng(3)
    context, labels = draw.normal(size=(3, 3, 5)), np.array([0, 3, 1])
    rows = slice(first, first + count)
    inputs = [
        network.backend.prepare(array[rows], network) for array in (context, labels)
    ]
    settings = {"method": method, "steps": 3, "eta": 0.5, "first_sample": first}
    came = sample(network, (count, 2, 4, 6), NoiseSchedule(100), *inputs, **settings)
    return network.backend.numpy(came)


@pytest.mark.parametrize("method", ["ddpm", "ddim"])
def test_pictures_are_the_same_on_every_backend_and_in_batches_of_any_size(
    method, backend
):
    whole = made("torch", 0, 3, method)
    assert np.abs(whole).max() > 0.1
    np.testing.assert_allclose(
        made(backend.name, 1, 2, method), whole[1:], rtol=1e-8, atol=1e-10
    )


REFUSED = [
    (
        lambda: NoiseSchedule(0),
        "num_train_timesteps=0 must be a whole number of at least 1",
    ),
    (
        lambda: NoiseSchedule(beta_schedule="line"),
        "no beta_schedule='line'. Did you mean 'linear'",
    ),
    (
        lambda: NoiseSchedule(beta_end=1e-5),
        "wanted variances between 0 and 1, the smaller one",
    ),
    (lambda: NoiseSchedule(10).timesteps(11), "steps=11; there are 10 at most"),
    (
        lambda: sample(None, SHAPE, method="ddm"),
        "sample: there is no method='ddm'. Did you mean",
    ),
]


def test_what_makes_no_sense_is_refused(subtests):
    for make, message in REFUSED:
        with (
            subtests.test(message),
            pytest.raises(SettingError, match=re.escape(message)),
        ):
            make()
