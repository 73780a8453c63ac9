// SPDX-License-Identifier: Apache-2.0
// The formulas of bound mode, by hand.
#include <cmath>

#include "test/catch.hpp"
#include "tolerance/bound.hpp"

namespace ttrace {

TEST_CASE("bounds are k epsilon sqrt(d)") {
  CHECK(activation_bound(0x1p-23, 1) == 4 * 0x1p-23);
  CHECK(activation_bound(0x1p-23, 9) == Approx(12 * 0x1p-23));
  CHECK(activation_bound(0x1p-7, 4) == Approx(4 * 0x1p-7));
  CHECK(gradient_bound(0x1p-23, 1, 16) == Approx(13 * 4 * 0x1p-23));
  CHECK(gradient_bound(0x1p-7, 12, 12) == Approx(10 * 0x1p-7));
}

TEST_CASE("a head's gradient has passed at least one operation") {
  CHECK(gradient_bound(0x1p-23, 13, 12) == Approx(13 * 0x1p-23));
  CHECK(gradient_bound(0x1p-23, 1, 0) == Approx(13 * 0x1p-23));
}

TEST_CASE("8-bit floats are storage between operations in bfloat16") {
  CHECK(working_epsilon(DType::float8_e4m3fn) == 0x1p-7);
  CHECK(working_epsilon(DType::float8_e5m2) == 0x1p-7);
  CHECK(working_epsilon(DType::bfloat16) == 0x1p-7);
  CHECK(working_epsilon(DType::float16) == 0x1p-10);
  CHECK(working_epsilon(DType::float32) == 0x1p-23);
  CHECK(working_epsilon(DType::float64) == 0x1p-52);
}

}  // namespace ttrace
