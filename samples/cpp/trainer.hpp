// SPDX-License-Identifier: Apache-2.0
// Trains a small residual MLP in pp x dp x tp processes. Every layout starts from the same weights
// and sees the same samples, so the printed losses agree up to rounding; they are printed with %a,
// so that two runs of one layout can be compared bit for bit.
#pragma once

#include <functional>

#include "samples/cpp/bug.hpp"
#include "samples/cpp/parallel.hpp"

// Makes of the mesh of processes, whose groups share memory, the one that the training uses.
using Connect = std::function<Mesh(const Mesh&, Bug)>;

// The program. `nccl` says that `connect` makes groups that communicate through NCCL.
int trainer_main(int argc, char** argv, const Connect& connect, bool nccl);
