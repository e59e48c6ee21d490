"""Several devices as PyTorch's tutorial of data parallelism has them: a model that says what it
sees in forward."""

import torch
import torch.nn as nn
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, Dataset

# was: from torch.nn import DataParallel
from deliralike import DataParallel


class Digits(Dataset):
    def __init__(self, length):
        bunch = load_digits()
        self.pixels = torch.from_numpy(bunch.data[:length] / 16)
        self.labels = torch.from_numpy(bunch.target[:length])
        self.len = length

    def __getitem__(self, index):
        return self.pixels[index], self.labels[index]

    def __len__(self):
        return self.len


class Model(nn.Module):
    def __init__(self, input_size, output_size):
        super().__init__()
        self.fc = nn.Linear(input_size, output_size)

    def forward(self, input):
        output = self.fc(input)
        print(f"  in the model: {tuple(input.size())} to {tuple(output.size())}")
        return output


def main(devices=None):
    torch.manual_seed(0)
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    loader = DataLoader(
        Digits(100),
        batch_size=30,
        shuffle=True,
        generator=torch.Generator().manual_seed(1),
    )
    model = Model(64, 10).double()
    model.to(device)
    parallel = model
    if devices is not None:
        parallel = DataParallel(model, devices)  # was: DataParallel(model), then .to

    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1, momentum=0.9)
    for pixels, labels in loader:
        pixels, labels = pixels.to(device), labels.to(device)
        output = parallel(pixels)
        print(f"outside: {tuple(pixels.size())} to {tuple(output.size())}")
        optimizer.zero_grad()
        criterion(output, labels).backward()
        optimizer.step()
    return model


if __name__ == "__main__":
    main(["cpu", "cpu"])  # on GPUs: ["cuda:0", "cuda:1"]
