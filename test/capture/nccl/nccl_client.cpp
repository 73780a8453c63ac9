// SPDX-License-Identifier: Apache-2.0
// usage: nccl_client SCENARIO, a program that is linked with NCCL.
#include "test/capture/nccl/rig.hpp"

int main(int count, char** words) { return run_scenario(count == 2 ? words[1] : ""); }
