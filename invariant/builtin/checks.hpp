// SPDX-License-Identifier: Apache-2.0
// One function a check, each in a file of its own; registry.cpp lists them.
#pragma once

#include <memory>

#include "invariant/builtin/check.hpp"

namespace ttrace::builtin {

[[nodiscard]] std::unique_ptr<Check> make_order();        // collective/order.cpp
[[nodiscard]] std::unique_ptr<Check> make_ended();        // collective/ended.cpp
[[nodiscard]] std::unique_ptr<Check> make_groups();       // collective/groups.cpp
[[nodiscard]] std::unique_ptr<Check> make_conserve();     // collective/conserve.cpp
[[nodiscard]] std::unique_ptr<Check> make_twice();        // collective/twice.cpp
[[nodiscard]] std::unique_ptr<Check> make_parts();        // collective/parts.cpp
[[nodiscard]] std::unique_ptr<Check> make_fresh();        // collective/fresh.cpp
[[nodiscard]] std::unique_ptr<Check> make_waited();       // collective/waited.cpp
[[nodiscard]] std::unique_ptr<Check> make_skipped();      // collective/skipped.cpp
[[nodiscard]] std::unique_ptr<Check> make_unreduced();    // collective/unreduced.cpp
[[nodiscard]] std::unique_ptr<Check> make_mixed();        // collective/mixed.cpp
[[nodiscard]] std::unique_ptr<Check> make_data();         // same_data.cpp
[[nodiscard]] std::unique_ptr<Check> make_random();       // random.cpp
[[nodiscard]] std::unique_ptr<Check> make_nonfinite();    // nonfinite.cpp
[[nodiscard]] std::unique_ptr<Check> make_zeroed();       // zeroed.cpp
[[nodiscard]] std::unique_ptr<Check> make_replicas();     // replicas.cpp
[[nodiscard]] std::unique_ptr<Check> make_tied();         // tied.cpp
[[nodiscard]] std::unique_ptr<Check> make_global_norm();  // global_norm.cpp
[[nodiscard]] std::unique_ptr<Check> make_update();       // update.cpp
[[nodiscard]] std::unique_ptr<Check> make_changed();      // changed.cpp

}  // namespace ttrace::builtin
