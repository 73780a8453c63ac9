// SPDX-License-Identifier: Apache-2.0
// A C++17 program on ttrace.hpp, driven by test_cpp_layer.cpp. Each line it prints is a wrong
// result.
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

// As cuda_bf16.h would.
struct __nv_bfloat16 {
  std::uint16_t bits;
};
#define __CUDA_BF16_TYPES_EXIST__
#include "capture/ttrace.hpp"

// A type of the program's own.
struct half {
  std::uint16_t bits;
};
template <>
struct ttrace::dtype_of<half> : ttrace::dtype_constant<TTRACE_FLOAT16> {};

namespace {

int failed = 0;

void expect(bool good, const char* what) {
  if (good) return;
  ++failed;
  std::printf("%s: %s\n", what, ttrace_last_error());
}
#define EXPECT(condition) expect((condition), #condition)

template <class T>
void record_one(const char* name) {
  const T value{};
  EXPECT(ttrace::record(ttrace::output().module(name), &value, {}).done());
}

void every_type() {
  record_one<double>("double");
  record_one<float>("float");
  record_one<bool>("bool");
  record_one<signed char>("signed char");
  record_one<unsigned char>("unsigned char");
  record_one<short>("short");
  record_one<int>("int");
  record_one<long>("long");
  record_one<long long>("long long");
  record_one<__nv_bfloat16>("bfloat16");
  record_one<half>("half");
  const std::uint16_t code = 0x3f80;
  EXPECT(ttrace::record(ttrace::output().module("code"), &code, TTRACE_BFLOAT16, {}).done());
}

// Of one tensor what every way to give it must say; 2 x 3 floats.
void every_container(std::size_t rows, int columns) {
  std::vector<float> values = {1, 2, 3, 4, 5, 6};
  const std::array<float, 6> fixed = {1, 2, 3, 4, 5, 6};
  const std::vector<int> shape = {2, 3};
  EXPECT(ttrace::record(ttrace::output("pointer"), values.data(), {rows, columns}).done());
  EXPECT(ttrace::record(ttrace::output("vector"), values, {rows, columns}).done());
  EXPECT(ttrace::record(ttrace::output("array"), fixed, shape).done());
  EXPECT(ttrace::record(ttrace::output("flat"), values).done());
}

void every_place() {
  const std::vector<float> values = {1, 2};
  using namespace ttrace;
  EXPECT(record(input(), values).done());
  EXPECT(record(grad_output("grad_output.1"), values).done());
  const Result value = record(parameter("w").layout("h[tp]", {4}).raw_name("module.w"), values);
  EXPECT(value.done());
  EXPECT(record(parameter("w", "master").alias_of(value.value()), values).done());
  EXPECT(record(gradient("w"), values).done());
  EXPECT(record(gradient("w", "local"), values).done());
  EXPECT(record(step("w"), values).done());
  EXPECT(record(buffer("all_reduce.input").call(2).kind(TTRACE_HASH), values).done());
  EXPECT(record(output().microbatch(7).flag(TTRACE_GLUE), values).done());
  ttrace_collective call = collective("all_reduce", "tp", 1, 2);
  call.reduction = "sum";
  call.count = values.size();
  EXPECT(begin(call).done() && record(call).done());
}

void wrong() {
  std::vector<float> values(3);
  const ttrace::Result size = ttrace::record(ttrace::output(), values, {2, 2});
  EXPECT(size.failed() && size.error() == EINVAL &&
         size.message() == "layer/output.0: its shape has 4 elements, the container 3");
  EXPECT(ttrace::feed(ttrace::output(), values, {2, 2}).failed());
  const std::vector<int> seventeen(17, 1);
  const ttrace::Result dimensions = ttrace::record(ttrace::output(), values.data(), seventeen);
  EXPECT(dimensions.failed() && dimensions.message().find("17 dimensions") != std::string::npos);
  try {
    ttrace::record(ttrace::output(), values.data(), {-1}).check();
    EXPECT(!"a negative extent was taken");
  } catch (const ttrace::Error& error) {
    EXPECT(error.code() == std::errc::invalid_argument &&
           std::strstr(error.what(), "larger than any memory") != nullptr);
  }
  const ttrace::Scope empty("");
  EXPECT(empty.result().failed() && std::string(ttrace_scope()) == "layer");
}

void nothing_is_captured() {
  std::vector<float> values = {1, 2};
  EXPECT(!ttrace::active());
  const ttrace::Result result = ttrace::record(ttrace::output(), values, {3}).check();
  EXPECT(!result.done() && !result.failed() && result.message().empty());
  EXPECT(!ttrace::feed(ttrace::output(), values, {2}).check().done());
}

}  // namespace

int main(int argc, char** argv) {
  ttrace::Options options;
  options.rank = 1;
  options.world_size = 2;
  nothing_is_captured();
  {
    ttrace::Run run(options);
    run.result().check();
    if (argc > 1 && std::string(argv[1]) == "inert") {
      nothing_is_captured();
      return failed;
    }
    EXPECT(run.result().done() && ttrace::active());
    EXPECT(run.axis("tp", 2, 1).done() && run.group("tp", {0, 1}).done());
    EXPECT(run.set("{\"note\":1}").done());
    {
      const ttrace::Iteration iteration(3);
      every_type();
      const ttrace::Microbatch microbatch(5);
      const ttrace::Scope outer("model");
      {
        const ttrace::Scope scope(std::string("layer"));
        every_container(2, 3);
        every_place();
        wrong();
      }
      EXPECT(std::string(ttrace_scope()) == "model");
    }
    EXPECT(std::string(ttrace_scope()).empty());
  }
  nothing_is_captured();
  return failed;
}
