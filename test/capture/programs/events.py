# SPDX-License-Identifier: Apache-2.0
"""events.py CASE [OUT]: small programs whose calls and changes are known.

What was computed goes to OUT with torch.save, as an independent truth.
"""
import importlib
import os
import signal
import sys
import threading
import time
import warnings

import torch
import torch.nn as nn
import torch.nn.functional as F

STEPS = 4


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(8, 16)
        self.drop = nn.Dropout(0.2)
        self.fc2 = nn.Linear(16, 4)

    def forward(self, x):
        return self.fc2(self.drop(F.relu(self.fc1(x))))


def batches(steps):
    g = torch.Generator().manual_seed(1)
    for _ in range(steps):
        yield torch.randn(8, 8, generator=g), torch.randint(0, 4, (8,), generator=g)


def train(out, kind="sgd", steps=STEPS):
    """With momentum: a tracker that replaces the optimizer's lists trains without it."""
    torch.manual_seed(0)
    model = Net()
    model.train()
    optimizer = (torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9) if kind == "sgd"
                 else torch.optim.Adam(model.parameters(), lr=0.01))
    record = []
    for data, target in batches(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(data), target)
        loss.backward()
        gradients = {name: p.grad.clone() for name, p in model.named_parameters()}
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        clipped = {name: p.grad.clone() for name, p in model.named_parameters()}
        optimizer.step()
        record.append({
            "loss": loss.detach(), "gradients": gradients, "clipped": clipped,
            "parameters": {name: p.detach().clone() for name, p in model.named_parameters()},
            "states": {name: {slot: value.clone() for slot, value in optimizer.state[p].items()
                              if torch.is_tensor(value)}
                       for name, p in model.named_parameters()}})
    torch.save(record, out)


def adam(out):
    train(out, "adam")


def killed(out):
    """In the middle of the fourth step, of steps that are long enough to be written one by one."""
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        optimizer.zero_grad()
        model(torch.ones(3, 4)).sum().backward()
        if step == STEPS - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.step()
        time.sleep(0.06)


def fails(out):
    model = nn.Linear(4, 2)
    try:
        model(torch.ones(3, 5))
    except RuntimeError as error:
        torch.save(str(error), out)
    try:
        torch.optim.SGD(model.parameters(), lr=-1.0)
    except ValueError:
        pass
    F.relu(torch.ones(2))
    raise KeyError("the program's own end")


class Asking(Net):
    def forward(self, x):
        if torch.compiler.is_compiling() and torch.is_grad_enabled():
            x = torch.relu(x) + torch.ones_like(x)
        return super().forward(x)


def compiled(out):
    torch.manual_seed(0)
    model = Asking()
    fast = torch.compile(model, backend="aot_eager", fullgraph=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for data, target in batches(STEPS):
        optimizer.zero_grad()
        loss = F.cross_entropy(fast(data), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    counters = sys.modules["torch._dynamo.utils"].counters
    torch.save({"losses": losses, "breaks": dict(counters["graph_break"]),
                "frames": dict(counters["frames"])}, out)


def scripted(out):
    torch.manual_seed(0)
    model = torch.jit.script(Net().eval())
    pool = torch.jit.script(lambda_free)
    torch.save([model(torch.ones(2, 8)), pool(torch.ones(1, 1, 4, 4)), model.code], out)


class WithDefault(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.act = nn.Linear(4, 4), torch.tanh

    def forward(self, x, scale=2):
        return self.act(self.fc(x)) * scale


def identities(out):
    """What torch, Dynamo and pickle know by identity, by defaults or by name."""
    import gc
    import io
    import weakref

    torch.manual_seed(0)
    model, x = WithDefault(), torch.ones(2, 4, requires_grad=True)
    again = torch.utils.checkpoint.checkpoint(model, x, use_reentrant=True)
    compiled_model = torch.compile(model, backend="eager")(x)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    @torch.compile(backend="eager")
    def step(x):
        optimizer.zero_grad()
        loss = model(x).pow(2).sum()
        loss.backward()
        optimizer.step()
        return loss

    loss = step(x)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)(x)
    layer = nn.TransformerEncoderLayer(8, 2)
    held = torch.zeros(1000)
    reference = weakref.ref(held)
    torch.optim.SGD(layer.parameters(), 0.1)  # looks for its name in the frames
    del held
    gc.collect()
    torch.save({"tensors": [again, compiled_model, loss, loaded],
                "facts": [layer.activation_relu_or_gelu, reference() is None]}, out)


def lambda_free(x):
    return F.max_pool2d(torch.sigmoid(x), 2)


def imports(out):
    """Modules of torch whose import calls many functions of torch, and one to be used."""
    F.relu(torch.ones(2))
    importlib.import_module("torch._dynamo")
    prune = importlib.import_module("torch.nn.utils.prune")
    F.gelu(torch.ones(2))
    prune.l1_unstructured(nn.Linear(3, 3), "weight", 0.5)


def threads(out):
    """Calls of several threads at once, each with an inner one."""
    together = threading.Barrier(3)  # a thread that ends leaves its number to the next

    def run(number):
        together.wait()
        dropout = nn.Dropout(number / 10)
        for _ in range(300):
            dropout(torch.ones(number))
        together.wait()

    running = [threading.Thread(target=run, args=(number,)) for number in (1, 2, 3)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()


def exits(out):
    F.relu(torch.ones(2))
    F.softmax(torch.ones(2), 0)
    sys.exit(7)


def stages(out):
    """Two models; one of them is evaluated between steps."""
    netG, netD = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 2), nn.ReLU(), nn.Linear(2, 1))
    first = torch.optim.Adam(netG.parameters(), lr=0.1)
    second = torch.optim.SGD(netD.parameters(), lr=0.1)
    for _ in range(2):
        netG.train()
        first.zero_grad()
        second.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = netD(netG(torch.ones(2, 4))).float().sum()
        loss.backward()
        first.step()
        second.step()
        netG.eval()
        with torch.no_grad():
            netG(torch.ones(2, 4))


def ddp(out):
    import torch.distributed as dist
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = Net()
    parallel = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(3):
        optimizer.zero_grad()
        torch.manual_seed(10 * step + dist.get_rank())
        loss = parallel(torch.randn(4, 8)).square().mean()
        loss.backward()
        optimizer.step()
    torch.save({name: p.detach() for name, p in model.named_parameters()},
               f"{out}.{dist.get_rank()}")
    time.sleep(0.2)  # gloo deadlocks with a DDP that goes while it ends its last collective
    dist.destroy_process_group()


def loaded(out):
    """Worker processes that call torch, too."""
    class Data(torch.utils.data.Dataset):
        def __len__(self):
            return 8

        def __getitem__(self, index):
            return F.relu(torch.full((4,), float(index)))

    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in torch.utils.data.DataLoader(Data(), batch_size=4, num_workers=1):
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()


def observed(out):
    """A program that watches what torch does, how deep it goes, and what it warns of."""
    class Seen(torch.overrides.TorchFunctionMode):
        def __init__(self):
            super().__init__()
            self.names = []

        def __torch_function__(self, func, types, args=(), kwargs=None):
            self.names.append(getattr(func, "__name__", str(func)))
            return func(*args, **(kwargs or {}))

    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    with Seen() as seen:
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.ones(3, 4)).sum().backward()
            optimizer.step()

    class Deep(nn.Module):
        def __init__(self, depth):
            super().__init__()
            self.inner = Deep(depth - 1) if depth else nn.Identity()

        def forward(self, x):
            return self.inner(x)

    deepest = Deep(230)(torch.ones(2))  # three frames a module, of 1000
    class Odd(nn.Module):
        def forward(self, x, *, scale=2.0):
            return x * scale

    code = torch.fx.symbolic_trace(Odd()).code
    freed = nn.Linear(4, 2)
    step = torch.optim.SGD(freed.parameters(), lr=0.1)
    kept = freed.weight.untyped_storage().nbytes()
    freed.weight.untyped_storage().resize_(0)  # as sharded and offloaded parameters are
    step.zero_grad()
    nn.Identity()(freed.weight)
    freed.weight.untyped_storage().resize_(kept)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        F.softmax(torch.ones(2, 2))  # which dimension?
    torch.save({"seen": seen.names, "code": code, "deepest": deepest,
                "warned": [(os.path.basename(w.filename), w.lineno) for w in caught]}, out)


def main():
    globals()[sys.argv[1]](sys.argv[2] if len(sys.argv) > 2 else None)


if __name__ == "__main__":
    main()
