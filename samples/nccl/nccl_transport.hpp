// SPDX-License-Identifier: Apache-2.0
// A group whose collectives are NCCL calls. The layers compute on the host: what they communicate
// is copied to the device and back.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "samples/cpp/bug.hpp"
#include "samples/cpp/parallel.hpp"
#include "samples/nccl/device.hpp"

class NcclTransport final : public Transport {
 public:
  // Takes `communicator`, and makes from it one for reduce-scatters, which need not queue behind
  // all-gathers then.
  NcclTransport(ncclComm_t communicator, std::shared_ptr<const Device> device, Bug bug);
  ~NcclTransport() override;

  void sum(std::span<float> values) override;
  std::vector<float> gather(std::span<const float> values, bool waits) override;
  std::vector<float> sum_and_scatter(std::span<const float> values) override;
  void exchange(const std::optional<Outgoing>& out, const std::optional<Incoming>& in) override;

 private:
  // To send from: while one is being sent the other can be filled.
  struct Outbox {
    Buffer buffers[2];
    std::size_t next = 0;
  };
  const float* fill(const Outgoing& out);

  ncclComm_t communicator_;
  ncclComm_t scatter_communicator_ = nullptr;
  std::shared_ptr<const Device> device_;
  Bug bug_;
  std::size_t size_ = 1;
  Buffer input_;
  Buffer output_;
  std::map<int, Outbox> outboxes_;  // of each peer
};
