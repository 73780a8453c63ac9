// SPDX-License-Identifier: Apache-2.0
// See nccl_transport.hpp.
#include "samples/nccl/nccl_transport.hpp"

#include <utility>

#include "samples/cpp/trace.hpp"

NcclTransport::NcclTransport(ncclComm_t communicator, std::shared_ptr<const Device> device, Bug bug)
    : communicator_(communicator), device_(std::move(device)), bug_(bug) {
  int size = 0;
  int member = 0;
  check(ncclCommCount(communicator_, &size), "ncclCommCount");
  check(ncclCommUserRank(communicator_, &member), "ncclCommUserRank");
  size_ = static_cast<std::size_t>(size);
  const int key = bug_ == Bug::swapped_slices ? size - 1 - member : member;
  check(ncclCommSplit(communicator_, 0, key, &scatter_communicator_, nullptr), "ncclCommSplit");
}

NcclTransport::~NcclTransport() {
  ncclCommDestroy(scatter_communicator_);
  ncclCommDestroy(communicator_);
}

void NcclTransport::sum(std::span<float> values) {
  float* const buffer = input_.of(values.size());
  device_->upload(values, buffer);
  device_->communicate(
      [&](cudaStream_t stream) {
        check(
            ncclAllReduce(buffer, buffer, values.size(), ncclFloat, ncclSum, communicator_, stream),
            "ncclAllReduce");
      },
      true);
  device_->download(buffer, values);
}

std::vector<float> NcclTransport::gather(std::span<const float> values, bool waits) {
  std::vector<float> all(values.size() * size_);
  float* const input = input_.of(values.size());
  float* const output = output_.of(all.size());
  device_->upload(values, input);
  device_->communicate(
      [&](cudaStream_t stream) {
        check(ncclAllGather(input, output, values.size(), ncclFloat, communicator_, stream),
              "ncclAllGather");
      },
      waits);
  device_->download(output, all);
  return all;
}

std::vector<float> NcclTransport::sum_and_scatter(std::span<const float> values) {
  std::vector<float> part(values.size() / size_);
  float* const input = input_.of(values.size());
  float* const output = output_.of(part.size());
  device_->upload(values, input);
  device_->communicate(
      [&](cudaStream_t stream) {
        check(ncclReduceScatter(input, output, part.size(), ncclFloat, ncclSum,
                                scatter_communicator_, stream),
              "ncclReduceScatter");
      },
      true);
  device_->download(output, part);
  return part;
}

// The buffer to send from, filled. What was sent from it before is gone: of two sends in a row,
// calls between them were waited for, and the communication stream keeps their order.
const float* NcclTransport::fill(const Outgoing& out) {
  Outbox& outbox = outboxes_[out.peer];
  float* const buffer = outbox.buffers[outbox.next].of(out.values.size());
  outbox.next = 1 - outbox.next;
  device_->upload(out.values, buffer);
  if (bug_ == Bug::stale_buffer) return outbox.buffers[0].of(out.values.size());
  return buffer;
}

void NcclTransport::exchange(const std::optional<Outgoing>& out,
                             const std::optional<Incoming>& in) {
  const float* const sent = out ? fill(*out) : nullptr;
  float* const received = in ? output_.of(in->values.size()) : nullptr;
  device_->communicate(
      [&](cudaStream_t stream) {
        check(ncclGroupStart(), "ncclGroupStart");
        if (out) {
          const TraceScope scope(out->module);
          trace_microbatch(out->microbatch);
          check(ncclSend(sent, out->values.size(), ncclFloat, out->peer, communicator_, stream),
                "ncclSend");
        }
        if (in) {
          const TraceScope scope(in->module);
          trace_microbatch(in->microbatch);
          check(ncclRecv(received, in->values.size(), ncclFloat, in->peer, communicator_, stream),
                "ncclRecv");
        }
        check(ncclGroupEnd(), "ncclGroupEnd");
      },
      in.has_value());
  if (in) device_->download(received, in->values);
}
