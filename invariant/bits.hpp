// SPDX-License-Identifier: Apache-2.0
// A set of small numbers that grows with them.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ttrace::invariant {

class Bits {
 public:
  void set(std::size_t number) {
    const std::size_t word = number / 64;
    if (word >= words_.size()) words_.resize(word + 1, 0);
    words_[word] |= std::uint64_t{1} << (number % 64);
  }
  [[nodiscard]] bool test(std::size_t number) const {
    const std::size_t word = number / 64;
    return word < words_.size() && (words_[word] >> (number % 64) & 1) != 0;
  }
  void merge(const Bits& other) {
    if (other.words_.size() > words_.size()) words_.resize(other.words_.size(), 0);
    for (std::size_t i = 0; i < other.words_.size(); ++i) words_[i] |= other.words_[i];
  }
  void intersect(const Bits& other) {
    for (std::size_t i = 0; i < words_.size(); ++i) {
      words_[i] &= i < other.words_.size() ? other.words_[i] : 0;
    }
  }
  template <class Each>
  void for_each(Each each) const {
    for (std::size_t i = 0; i < words_.size(); ++i) {
      for (std::uint64_t rest = words_[i]; rest != 0; rest &= rest - 1) {
        each(i * 64 + static_cast<std::size_t>(std::countr_zero(rest)));
      }
    }
  }
  [[nodiscard]] bool any() const {
    for (const std::uint64_t word : words_) {
      if (word != 0) return true;
    }
    return false;
  }
  [[nodiscard]] std::size_t count() const {
    std::size_t sum = 0;
    for (const std::uint64_t word : words_) sum += static_cast<std::size_t>(std::popcount(word));
    return sum;
  }

 private:
  std::vector<std::uint64_t> words_;
};

}  // namespace ttrace::invariant
