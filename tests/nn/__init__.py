from tests.references import allow_torchvision

allow_torchvision()
