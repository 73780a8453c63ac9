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
'Healthy: 2-layer classifier, plain SGD with momentum, train + test loop.'
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
STEPS = 8 * int(os.environ.get('TT_MULT', '1'))

class Net(nn.Module):

    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(16, 32)
        self.drop = nn.Dropout(0.2)
        self.fc2 = nn.Linear(32, 4)

    def forward(self, x):
        return self.fc2(self.drop(F.relu(self.fc1(x))))

def make_data(n, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 16, generator=g)
    y = (x[:, 0] > 0).long() + 2 * (x[:, 1] > 0).long()
    return list(zip(x.split(32), y.split(32)))

def main():
    annotate_stage('init')
    torch.manual_seed(0)
    train_loader = make_data(32 * STEPS, 1)
    test_loader = make_data(64, 2)
    model = Net()
    model = Proxy(model, recurse=True, logdir=proxy_config.proxy_log_dir, var_name='model')
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loss_fn = nn.CrossEntropyLoss()
    annotate_stage('training')
    model.train()
    for data, target in train_loader:
        from traincheck.instrumentor.control import start_step
        start_step()
        optimizer.zero_grad()
        loss = loss_fn(model(data), target)
        loss.backward()
        annotate_stage('training')
        optimizer.step()
    annotate_stage('testing')
    model.eval()
    correct = 0
    annotate_stage('testing')
    with torch.no_grad():
        for data, target in test_loader:
            from traincheck.instrumentor.control import start_eval_step
            start_eval_step()
            output = model(data)
            pred = output.argmax(1)
            correct += (pred == target).sum().item()
    print(f'RESULT loss {loss.item():.6f} correct {correct}/64')
if __name__ == '__main__':
    main()