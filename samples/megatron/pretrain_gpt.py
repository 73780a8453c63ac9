# SPDX-License-Identifier: Apache-2.0
"""Pretrains a small GPT with Megatron-Core on CPU: any layout, same samples, reproducible.

Run it as one process or under torchrun. The token at every (sample, position) is a function of
the seed and the *global* sample number only, so two layouts with equal batch sizes train on the
same data, micro-batch by micro-batch; `--bug` breaks one thing silently (see bugs/).
"""

import argparse
import os
import socket
from functools import partial

import torch
import torch.distributed as dist

import arguments
import bugs
import cpu

cpu.prepare_torch()

from megatron.core import parallel_state as mpu  # noqa: E402
from megatron.core import tensor_parallel  # noqa: E402
from megatron.core.distributed import (  # noqa: E402
    DistributedDataParallel,
    DistributedDataParallelConfig,
    finalize_model_grads,
)
from megatron.core.enums import ModelType  # noqa: E402
from megatron.core.models.gpt import GPTModel  # noqa: E402
from megatron.core.models.gpt.gpt_layer_specs import (  # noqa: E402
    get_gpt_layer_local_spec,
    get_gpt_mtp_block_spec,
)
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer  # noqa: E402
from megatron.core.pipeline_parallel import get_forward_backward_func  # noqa: E402
from megatron.core.transformer import TransformerConfig  # noqa: E402
from megatron.core.transformer.module import Float16Module  # noqa: E402

import context  # noqa: E402
import flash  # noqa: E402
import fp8  # noqa: E402
import loss  # noqa: E402
import overlap  # noqa: E402

cpu.prepare_megatron()


def initialize(args: argparse.Namespace) -> None:
    if "RANK" not in os.environ:  # one plain process, not under torchrun
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo")
    mpu.initialize_model_parallel(
        tensor_model_parallel_size=args.tp,
        pipeline_model_parallel_size=args.pp,
        virtual_pipeline_model_parallel_size=args.vpp if args.vpp > 1 else None,
        context_parallel_size=args.cp,
        expert_model_parallel_size=args.ep,
        expert_tensor_parallel_size=args.etp if args.experts else None,
        create_gloo_process_groups=False,
    )
    seed = args.seed + 100 * mpu.get_pipeline_model_parallel_rank()
    torch.manual_seed(seed)
    tensor_parallel.model_parallel_cuda_manual_seed(seed)


def transformer_config(args: argparse.Namespace) -> TransformerConfig:
    dtype = torch.bfloat16 if args.bf16 else torch.float32
    biases = not (args.swiglu or args.experts)
    # What stages send each other. Under autocast a layer's output has the type of its biases;
    # without any Megatron casts the residual to that of the product.
    sent = torch.bfloat16 if args.amp and not biases else dtype
    recompute = {}
    if args.recompute:
        recompute = dict(
            recompute_granularity="full",
            recompute_method="uniform",
            recompute_num_layers=args.recompute,
        )
    experts = {}
    if args.experts:
        experts = dict(
            num_moe_experts=args.experts,
            moe_router_topk=2,
            moe_router_load_balancing_type="aux_loss",
            moe_aux_loss_coeff=1e-2,
            moe_token_dispatcher_type=args.dispatcher,
            expert_model_parallel_size=args.ep,
            expert_tensor_parallel_size=args.etp,
        )
    return TransformerConfig(
        num_layers=args.layers,
        hidden_size=args.hidden,
        num_attention_heads=args.heads,
        num_query_groups=args.kv_heads,
        ffn_hidden_size=args.ffn_hidden,
        normalization="RMSNorm" if args.rmsnorm else "LayerNorm",
        gated_linear_unit=args.swiglu,
        activation_func=torch.nn.functional.silu if args.swiglu else torch.nn.functional.gelu,
        add_bias_linear=biases,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        tensor_model_parallel_size=args.tp,
        pipeline_model_parallel_size=args.pp,
        virtual_pipeline_model_parallel_size=args.vpp if args.vpp > 1 else None,
        context_parallel_size=args.cp,
        sequence_parallel=args.sp,
        bf16=args.bf16,
        params_dtype=dtype,
        pipeline_dtype=sent,
        enable_autocast=args.amp,
        autocast_dtype=torch.bfloat16,
        use_cpu_initialization=True,
        batch_p2p_comm=False,
        deallocate_pipeline_outputs=True,
        gradient_accumulation_fusion=False,
        masked_softmax_fusion=False,
        persist_layer_norm=False,
        calculate_per_token_loss=args.per_token_loss,
        mtp_num_layers=args.mtp,
        **recompute,
        **experts,
    )


def layer_spec(args: argparse.Namespace, config: TransformerConfig):
    """Megatron's layer of its own modules, with attention that knows context parallelism."""
    spec = get_gpt_layer_local_spec(args.experts, normalization=config.normalization)
    attention = flash.FlashAttention if args.flash else context.GatheredAttention
    spec.submodules.self_attention.submodules.core_attention = attention
    return spec


def build_model(args: argparse.Namespace, config: TransformerConfig) -> list:
    """One wrapped GPTModel for each chunk that this pipeline rank holds."""
    ddp_config = DistributedDataParallelConfig(
        grad_reduce_in_fp32=not args.fp64,
        use_distributed_optimizer=args.distributed_optimizer,
        overlap_grad_reduce=args.bucket_size is not None,
        bucket_size=args.bucket_size,
    )
    chunks = []
    for index in range(args.vpp):
        vp_stage = index if args.vpp > 1 else None
        stage = dict(ignore_virtual=False, vp_stage=vp_stage)
        spec = layer_spec(args, config)
        more = {}
        if args.mtp:
            more["mtp_block_spec"] = get_gpt_mtp_block_spec(config, spec, False, vp_stage=vp_stage)
        model = GPTModel(
            config,
            spec,
            vocab_size=args.padded_vocab,
            max_sequence_length=args.seq,
            pre_process=mpu.is_pipeline_first_stage(**stage),
            post_process=mpu.is_pipeline_last_stage(**stage),
            share_embeddings_and_output_weights=not args.untie,
            position_embedding_type="rope" if args.rope else "learned_absolute",
            vp_stage=vp_stage,
            **more,
        )
        model.model_type = ModelType.encoder_or_decoder
        for parameter in model.parameters():
            tensor_parallel.set_defaults_if_not_set_tensor_model_parallel_attributes(parameter)
        if args.bf16:
            model = Float16Module(config, model)
        if args.fp64:
            model.double()
        chunks.append(
            DistributedDataParallel(config, ddp_config, model, disable_bucketing=index > 0)
        )
    if args.fp8:
        fp8.install(chunks)
    if args.overlap_ring:
        overlap.install(chunks)
    return chunks


def build_optimizer(args: argparse.Namespace, chunks: list):
    config = OptimizerConfig(
        optimizer=args.optimizer,
        lr=args.lr,
        min_lr=args.lr,
        clip_grad=args.clip_grad,
        bf16=args.bf16,
        params_dtype=torch.bfloat16 if args.bf16 else torch.float32,
        use_distributed_optimizer=args.distributed_optimizer,
    )
    return get_megatron_optimizer(config, chunks, use_gloo_process_groups=False)


def sample_tokens(args: argparse.Namespace, index: int) -> torch.Tensor:
    """A walk in steps of 7 with a few random jumps: easy enough for the loss to fall."""
    generator = torch.Generator().manual_seed(args.seed * 1_000_003 + index)
    length = args.seq + 1
    start = torch.randint(args.vocab, (1,), generator=generator)
    noise = torch.randint(args.vocab, (length,), generator=generator)
    jumps = torch.rand(length, generator=generator) < 0.1
    walk = (start + 7 * torch.arange(length)) % args.vocab
    return torch.where(jumps, noise, walk)


def micro_batches(args: argparse.Namespace):
    """This data parallel rank's micro-batches, in the order of Megatron's own sampler."""
    rank = mpu.get_data_parallel_rank()
    position = torch.arange(args.seq).expand(args.micro_batch_size, -1)
    mask = torch.ones(args.seq, args.seq).tril() < 0.5
    for iteration in range(args.iters):
        for micro_batch in range(args.micro_batches):
            first = iteration * args.global_batch_size
            first += (micro_batch * args.dp + rank) * args.micro_batch_size
            samples = range(first, first + args.micro_batch_size)
            tokens = torch.stack([sample_tokens(args, index) for index in samples])
            batch = {
                "tokens": tokens[:, :-1].contiguous(),
                "labels": tokens[:, 1:].contiguous(),
                "loss_mask": loss.mask(samples, args.seq, args.per_token_loss),
                "attention_mask": mask.expand(args.micro_batch_size, 1, -1, -1),
                "position_ids": position,
            }
            yield context.own_part(batch, args.seq)


def get_batch(data_iterator, more_tokens: bool) -> dict:
    """The first stage needs tokens, the last one labels (and tokens, to predict more of them)."""
    batch = next(data_iterator)
    if not (mpu.is_pipeline_first_stage() or more_tokens and mpu.is_pipeline_last_stage()):
        batch["tokens"] = batch["position_ids"] = None
    if not mpu.is_pipeline_last_stage():
        batch["labels"] = batch["loss_mask"] = None
    return batch


def forward_step(data_iterator, model):
    batch = get_batch(data_iterator, bool(model.config.mtp_num_layers))
    output = model(
        batch["tokens"], batch["position_ids"], batch["attention_mask"], labels=batch["labels"]
    )
    return output, partial(loss.loss_function, batch["loss_mask"])


def train_step(args: argparse.Namespace, chunks: list, optimizer, iterators: list):
    for chunk in chunks:
        chunk.zero_grad_buffer()
    optimizer.zero_grad()
    reports = get_forward_backward_func()(
        forward_step_func=forward_step,
        data_iterator=iterators if args.vpp > 1 else iterators[0],
        model=chunks if args.vpp > 1 else chunks[0],
        num_microbatches=args.micro_batches,
        seq_length=args.seq,
        micro_batch_size=args.micro_batch_size,
        forward_only=False,
    )
    _, grad_norm, _ = optimizer.step()
    return reports, grad_norm


def log(iteration: int, reports: list, grad_norm: float) -> None:
    if not mpu.is_pipeline_last_stage():
        return
    total = torch.stack([report["lm loss"] for report in reports]).sum(dim=0)
    group = mpu.get_data_parallel_group(with_context_parallel=True)
    dist.all_reduce(total, group=group)
    mean = (total[0] / total[1]).item()
    if mpu.get_tensor_model_parallel_rank() == 0 and group.rank() == 0:
        norm = float(grad_norm)
        print(
            f"iteration {iteration} loss {mean.hex()} ({mean:.6f}) grad_norm {norm.hex()}",
            flush=True,
        )


def main() -> None:
    args = arguments.parse()
    if args.fp64:
        cpu.prepare_double()
    if args.amp:
        cpu.prepare_autocast()
    initialize(args)
    bugs.apply_before(args)
    config = transformer_config(args)
    chunks = build_model(args, config)
    optimizer = build_optimizer(args, chunks)
    config.grad_scale_func = optimizer.scale_loss
    config.finalize_model_grads_func = finalize_model_grads
    if args.bucket_size is not None:  # gradients are complete with the last micro-batch only
        syncs = [chunk.no_sync for chunk in chunks]
        config.no_sync_func = syncs if args.vpp > 1 else syncs[0]
    bugs.apply_after(args, chunks)
    bugs.apply_to_optimizer(args, optimizer)
    iterators = [micro_batches(args) for _ in chunks]
    for chunk in chunks:
        chunk.train()
    for iteration in range(args.iters):
        log(iteration, *train_step(args, chunks, optimizer, iterators))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
