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
'Healthy: one-block causal transformer language model, AdamW, zero_grad, clip_grad_norm_, warm-up schedule.'
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
V, D, T = (32, 16, 12)

class Block(nn.Module):

    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = (nn.LayerNorm(D), nn.LayerNorm(D))
        self.qkv, self.proj = (nn.Linear(D, 3 * D), nn.Linear(D, D))
        self.up, self.down = (nn.Linear(D, 4 * D), nn.Linear(4 * D, D))

    def forward(self, x):
        q, k, v = self.qkv(self.ln1(x)).chunk(3, dim=-1)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a)
        return x + self.down(F.gelu(self.up(self.ln2(x))))

class LM(nn.Module):

    def __init__(self):
        super().__init__()
        self.tok, self.pos = (nn.Embedding(V, D), nn.Embedding(T, D))
        self.block, self.head = (Block(), nn.Linear(D, V, bias=False))

    def forward(self, idx):
        x = self.tok(idx) + self.pos(torch.arange(idx.shape[1]))
        return self.head(self.block(x))

def main():
    annotate_stage('init')
    torch.manual_seed(0)
    g = torch.Generator().manual_seed(1)
    model = LM()
    model = Proxy(model, recurse=True, logdir=proxy_config.proxy_log_dir, var_name='model')
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda i: min(1.0, (i + 1) / 4))
    annotate_stage('training')
    model.train()
    for it in range(STEPS):
        from traincheck.instrumentor.control import start_step
        start_step()
        batch = torch.randint(0, V, (4, T + 1), generator=g)
        optimizer.zero_grad()
        logits = model(batch[:, :-1])
        loss = F.cross_entropy(logits.reshape(-1, V), batch[:, 1:].reshape(-1))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        annotate_stage('training')
        optimizer.step()
        annotate_stage('training')
        scheduler.step()
    print(f'RESULT loss {loss.item():.6f}')
if __name__ == '__main__':
    main()