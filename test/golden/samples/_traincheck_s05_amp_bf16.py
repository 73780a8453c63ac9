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
'Healthy: autocast to bfloat16 on the CPU for the forward pass, fp32 master weights, SGD.'
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
STEPS = 6 * int(os.environ.get('TT_MULT', '1'))

class Net(nn.Module):

    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(16, 32)
        self.fc2 = nn.Linear(32, 4)

    def forward(self, x):
        h = F.relu(self.fc1(x))
        return self.fc2(h)

def main():
    annotate_stage('init')
    torch.manual_seed(0)
    g = torch.Generator().manual_seed(1)
    model = Net()
    model = Proxy(model, recurse=True, logdir=proxy_config.proxy_log_dir, var_name='model')
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    annotate_stage('training')
    model.train()
    for i in range(STEPS):
        from traincheck.instrumentor.control import start_step
        start_step()
        data = torch.randn(8, 16, generator=g)
        target = torch.randint(0, 4, (8,), generator=g)
        optimizer.zero_grad()
        with torch.autocast(device_type='cpu', dtype=torch.bfloat16):
            output = model(data)
        loss = F.cross_entropy(output.float(), target)
        loss.backward()
        annotate_stage('training')
        optimizer.step()
    annotate_stage('testing')
    model.eval()
    annotate_stage('testing')
    with torch.no_grad():
        for i in range(3):
            pred = model(torch.randn(8, 16, generator=g))
    print(f'RESULT loss {loss.item():.6f} {output.dtype} {pred.dtype}')
if __name__ == '__main__':
    main()