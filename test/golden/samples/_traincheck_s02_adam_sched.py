from traincheck import annotate_stage
import os
os.environ['TRAINCHECK_OUTPUT_DIR'] = "/tmp/ttrace-bench-events-2r99qasn/out"

from traincheck.utils import register_custom_excepthook
if os.environ.get("TRAINCHECK_DEBUG") == "1":
    print("TRAINCHECK_DEBUG is set to 1, registering custom excepthook")
    register_custom_excepthook(True)

import traincheck.config.config as general_config
general_config.INSTR_DESCRIPTORS = False
general_config.MODEL_TRACKER_STYLE = 'proxy'
import traincheck.instrumentor.proxy_wrapper.proxy_config as proxy_config
proxy_config.__dict__.update({'proxy_log_dir': '/tmp/ttrace-bench-events-2r99qasn/out/proxy_log.json'})

from traincheck.instrumentor.proxy_wrapper.proxy import Proxy

import glob
import importlib
from traincheck.instrumentor.proxy_wrapper.proxy_config import auto_observer_config
spec = importlib.util.find_spec('traincheck')
if spec and spec.origin:
    traincheck_folder = os.path.dirname(spec.origin)
else:
    raise Exception("traincheck is not installed properly")
enable_auto_observer_depth = auto_observer_config["enable_auto_observer_depth"]
neglect_hidden_func = auto_observer_config["neglect_hidden_func"]
neglect_hidden_module = auto_observer_config["neglect_hidden_module"]
observe_then_unproxy = auto_observer_config["observe_then_unproxy"]
observe_up_to_depth = auto_observer_config["observe_up_to_depth"]
from traincheck.static_analyzer.graph_generator.call_graph_parser import add_observer_given_call_graph

log_files = glob.glob(
    os.path.join(traincheck_folder, "static_analyzer", "func_level", "*.log")
)
for log_file in log_files:
    add_observer_given_call_graph(
        log_file,
        depth=enable_auto_observer_depth,
        observe_up_to_depth=observe_up_to_depth,
        neglect_hidden_func=neglect_hidden_func,
        neglect_hidden_module=neglect_hidden_module,
        observe_then_unproxy=observe_then_unproxy,
    )
'Healthy: small CNN, Adam + StepLR, two epochs, each with a train and a test pass.'
import os
import prewarm
import torch
from traincheck.instrumentor.tracer import Instrumentor
Instrumentor(torch, scan_proxy_in_args=True, use_full_instr=False, funcs_to_instr=None, API_dump_stack_trace=False, sampling_interval=1, warm_up_steps=1).instrument()
import torch.nn as nn
from traincheck.instrumentor.tracer import Instrumentor
Instrumentor(nn, scan_proxy_in_args=True, use_full_instr=False, funcs_to_instr=None, API_dump_stack_trace=False, sampling_interval=1, warm_up_steps=1).instrument()
import torch.nn.functional as F
from traincheck.instrumentor.tracer import Instrumentor
Instrumentor(F, scan_proxy_in_args=True, use_full_instr=False, funcs_to_instr=None, API_dump_stack_trace=False, sampling_interval=1, warm_up_steps=1).instrument()
STEPS = 4 * int(os.environ.get('TT_MULT', '1'))

class Cnn(nn.Module):

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.bn = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(0.25)
        self.fc = nn.Linear(4 * 6 * 6, 3)

    def forward(self, x):
        x = F.relu(self.bn(self.conv(x)))
        return self.fc(self.drop(torch.flatten(x, 1)))

def make_data(n, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 1, 8, 8, generator=g)
    y = torch.randint(0, 3, (n,), generator=g)
    return list(zip(x.split(8), y.split(8)))

def train(model, loader, optimizer):
    annotate_stage('training')
    model.train()
    for data, target in loader:
        from traincheck.instrumentor.control import start_step
        start_step()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(data), target)
        loss.backward()
        annotate_stage('training')
        optimizer.step()
    return loss.item()

def test(model, loader):
    annotate_stage('testing')
    model.eval()
    total = 0.0
    annotate_stage('testing')
    with torch.no_grad():
        for data, target in loader:
            total += F.cross_entropy(model(data), target).item()
    return total / len(loader)

def main():
    annotate_stage('init')
    torch.manual_seed(0)
    model = Cnn()
    model = Proxy(model, recurse=True, logdir=proxy_config.proxy_log_dir, var_name='model')
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    train_loader, test_loader = (make_data(8 * STEPS, 1), make_data(16, 2))
    for epoch in range(2):
        from traincheck.instrumentor.control import start_step
        start_step()
        tr = train(model, train_loader, optimizer)
        te = test(model, test_loader)
        annotate_stage('training')
        scheduler.step()
        print(f'RESULT epoch {epoch} train {tr:.6f} test {te:.6f} lr {scheduler.get_last_lr()[0]}')
if __name__ == '__main__':
    main()