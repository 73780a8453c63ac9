// SPDX-License-Identifier: Apache-2.0
// What a run in pipeline stages records otherwise than one that holds the whole model, and what any
// run of several ranks records beside its tensors.
#pragma once

#include <set>

#include "libttrace/logical.hpp"

namespace ttrace {

// What stages hand to each other is an input or an output to the model on a stage; to the whole
// model it is neither. Removes shards of the root module that are of another kind (type class or
// number of dimensions) than the reference's tensor of that key, or from another rank than those
// that compute the reference's first module (inputs) or last one (outputs), where other ranks have
// what is wanted and the rank holds other parameters than they do. What was handed on stays
// recorded as the tensor that some module returned.
void leave_out_handovers(const ShardGroups& reference, ShardGroups& candidate);

// Takes out the buffers of collectives: what ranks give to each other depends on how tensors are
// cut, and is no part of one. Returns their keys.
std::set<Key> take_collectives(ShardGroups& groups);

// A module of which several stages hold a copy (an embedding that an extra head needs, too) is
// called on each of them, and each counts from 0. Where no rank calls it as often as the
// reference does, but stages together do, their calls are counted on in the order of their ranks.
// Stages are ranks of different parameters.
void count_calls_over_stages(const ShardGroups& reference, ShardGroups& candidate);

}  // namespace ttrace
