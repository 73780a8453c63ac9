// SPDX-License-Identifier: Apache-2.0
// See ring.hpp. Every sleeper stores its flag and then looks at the counter again, while the other
// side moves the counter and then looks at the flag, both sequentially consistent: one of them sees
// the other, so no wake-up is lost. The time-outs are only there to notice a death.
#include "libttrace/core/ring.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <new>
#include <system_error>
#include <utility>

#include "libttrace/core/trouble.hpp"

namespace ttrace {

using Milliseconds = std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

namespace {

constexpr std::uint32_t kRingMagic = 0x676e6952;
constexpr std::uint32_t kRingVersion = 2;   // of the header and of the messages
constexpr std::size_t kHeaderBytes = 4096;  // a page; the data begin behind it
constexpr std::uint64_t kPublishEvery = std::uint64_t{1} << 20;
constexpr Milliseconds kHeartbeat{100};
// An idle consumer first naps without asking to be woken: in a burst of small messages the producer
// then makes no system call at all. A full ring ends the nap.
constexpr Milliseconds kNap{1};

[[noreturn]] void fail(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t seen, Milliseconds limit) {
  const auto count = std::max<std::int64_t>(limit.count(), 0);
  const timespec time{static_cast<time_t>(count / 1000), static_cast<long>(count % 1000 * 1000000)};
  syscall(SYS_futex, &word, FUTEX_WAIT, seen, &time, nullptr, 0);
}

void ring_bell(std::atomic<std::uint32_t>& bell) {
  bell.fetch_add(1);
  syscall(SYS_futex, &bell, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

}  // namespace

struct RingHeader {
  std::uint32_t magic = kRingMagic;
  std::uint32_t version = kRingVersion;
  std::uint64_t capacity = 0;
  alignas(64) std::atomic<std::uint64_t> head{0};
  std::atomic<std::uint32_t> head_bell{0};
  std::atomic<std::uint32_t> consumer_sleeps{0};
  alignas(64) std::atomic<std::uint64_t> tail{0};
  std::atomic<std::uint32_t> tail_bell{0};
  std::atomic<std::uint64_t> room_wanted{0};        // by a sleeping producer; 0: it does not sleep
  alignas(64) std::atomic<std::uint32_t> state{0};  // ConsumerState, and a futex
  std::int32_t error = 0;
  char message[1024] = {};
  pthread_mutex_t consumer_lives;  // robust, held by the consumer
};
static_assert(sizeof(RingHeader) <= kHeaderBytes);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

// ---- mapping ----

RingMapping::RingMapping(int fd, std::size_t bytes, Pages pages)
    : address_(nullptr), bytes_(bytes) {
  const bool small = bytes <= kMaxPopulatedRing + kHeaderBytes;
  const int populate = small && pages == Pages::now ? MAP_POPULATE : 0;
  address_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | populate, fd, 0);
  if (address_ == MAP_FAILED) fail("map the ring");
}

RingMapping::~RingMapping() { munmap(address_, bytes_); }

RingHeader& RingMapping::header() const { return *static_cast<RingHeader*>(address_); }

std::byte* RingMapping::data() const { return static_cast<std::byte*>(address_) + kHeaderBytes; }

void RingMapping::hide_from_forks() const { madvise(address_, bytes_, MADV_DONTFORK); }

// ---- producer ----

namespace {

int make_memory(std::uint64_t bytes) {
  // Growing a file beyond the limit would kill the traced process, shared memory included.
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < bytes) {
    errno = EFBIG;
    fail("ring larger than ulimit -f, use a smaller --ring");
  }
  const int fd = memfd_create("ttrace-ring", MFD_CLOEXEC);
  if (fd < 0) fail("create the ring");
  // Allocated now where it is to be touched now: without memory that is an error here and not a
  // SIGBUS in the middle of training.
  const bool populated = bytes <= kMaxPopulatedRing + kHeaderBytes;
  errno = populated ? posix_fallocate(fd, 0, static_cast<off_t>(bytes)) : 0;
  if (errno != 0 || (!populated && ftruncate(fd, static_cast<off_t>(bytes)) != 0)) {
    const int error = errno;
    close(fd);
    errno = error;
    fail("allocate the ring");
  }
  return fd;
}

void make_robust(pthread_mutex_t& mutex) {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&mutex, &attributes);
  pthread_mutexattr_destroy(&attributes);
}

}  // namespace

RingProducer::RingProducer(std::uint64_t capacity)
    : fd_(make_memory(std::max(capacity, kMinRing) + kHeaderBytes)),
      mapping_(fd_, std::max(capacity, kMinRing) + kHeaderBytes, Pages::now),
      capacity_(std::max(capacity, kMinRing)) {
  auto* header = new (&mapping_.header()) RingHeader;
  header->capacity = capacity_;
  make_robust(header->consumer_lives);
  mapping_.hide_from_forks();
}

RingProducer::~RingProducer() { close_fd(); }

void RingProducer::close_fd() {
  if (fd_ >= 0) close(std::exchange(fd_, -1));
}

// Waits for some and does not take it. Empty: the consumer is gone.
std::span<std::byte> RingProducer::next_room(std::size_t want) {
  const RingHeader& header = mapping_.header();
  const auto room = [&] { return capacity_ - (written_ - header.tail.load()); };
  if (room() == 0 && !wait_for_room()) return {};
  // Who filled these bytes a round ago moved the head before the consumer moved the tail. Thread
  // sanitizers do not see the consumer's process, but this.
  (void)header.head.load();
  const std::uint64_t at = written_ % capacity_;
  const auto piece = std::min<std::uint64_t>({want, room(), capacity_ - at});
  return {mapping_.data() + at, static_cast<std::size_t>(piece)};
}

bool RingProducer::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::span<std::byte> room = next_room(std::min<std::size_t>(bytes.size(), kPublishEvery));
    if (room.empty()) return false;
    std::memcpy(room.data(), bytes.data(), room.size());
    written_ += room.size();
    bytes = bytes.subspan(room.size());
    if (written_ - to_show_ >= kPublishEvery) publish();
  }
  return true;
}

std::span<std::byte> RingProducer::reserve(std::size_t want) {
  const std::span<std::byte> room = next_room(want);
  if (room.empty()) return {};
  const std::lock_guard lock(show_mutex_);
  unsettled_.push_back(written_);
  written_ += room.size();
  return room;
}

void RingProducer::settle() {
  const std::lock_guard lock(show_mutex_);
  unsettled_.pop_front();
  show_settled();
}

void RingProducer::publish() {
  const std::lock_guard lock(show_mutex_);
  to_show_ = written_;
  show_settled();
}

void RingProducer::show_settled() {
  RingHeader& header = mapping_.header();
  header.head.store(unsettled_.empty() ? to_show_ : std::min(to_show_, unsettled_.front()));
  // A producer that waits for room cannot afford the consumer's nap.
  if (header.consumer_sleeps.load() != 0 || header.room_wanted.load() != 0)
    ring_bell(header.head_bell);
}

std::span<std::byte> RingProducer::memory() const {
  return {mapping_.data(), static_cast<std::size_t>(capacity_)};
}

bool RingProducer::wait_for_room() {
  RingHeader& header = mapping_.header();
  const std::uint64_t wanted = std::min(capacity_ / 4, kPublishEvery);
  publish();
  ring_bell(header.head_bell);  // it may be napping
  const auto room = [&] { return capacity_ - (written_ - header.tail.load()); };
  while (room() < wanted) {
    const std::uint32_t bell = header.tail_bell.load();
    header.room_wanted.store(wanted);
    if (room() < wanted) futex_wait(header.tail_bell, bell, kHeartbeat);
    header.room_wanted.store(0);
    if (room() < wanted && consumer_gone()) return false;
  }
  return true;
}

bool RingProducer::consumer_gone() const {
  RingHeader& header = mapping_.header();
  const auto state = static_cast<ConsumerState>(header.state.load());
  if (state == ConsumerState::starting) return false;  // it does not hold the lock yet
  if (state != ConsumerState::ready) return true;
  const int result = pthread_mutex_trylock(&header.consumer_lives);
  if (result == EBUSY) return false;
  if (result == EOWNERDEAD) pthread_mutex_consistent(&header.consumer_lives);
  if (result == EOWNERDEAD || result == 0) pthread_mutex_unlock(&header.consumer_lives);
  return true;
}

ConsumerReport RingProducer::report() const {
  const RingHeader& header = mapping_.header();
  ConsumerReport report;
  report.state = static_cast<ConsumerState>(header.state.load());
  report.error = header.error;
  report.message.assign(header.message, strnlen(header.message, sizeof header.message));
  return report;
}

ConsumerReport RingProducer::wait_while(ConsumerState state, Milliseconds limit) const {
  RingHeader& header = mapping_.header();
  const auto end = Clock::now() + limit;
  const auto code = static_cast<std::uint32_t>(state);
  while (header.state.load() == code && Clock::now() < end && !consumer_gone()) {
    const auto left = std::chrono::duration_cast<Milliseconds>(end - Clock::now());
    futex_wait(header.state, code, std::min(kHeartbeat, left + Milliseconds(1)));
  }
  return report();
}

// ---- consumer ----

namespace {

std::size_t size_of_file(int fd) {
  struct stat file {};
  if (fstat(fd, &file) != 0) fail("look at the ring");
  if (static_cast<std::uint64_t>(file.st_size) < kMinRing + kHeaderBytes) {
    throw Trouble("ring", "shared memory", "is too small to be one");
  }
  return static_cast<std::size_t>(file.st_size);
}

}  // namespace

RingConsumer::RingConsumer(int fd, ProcessWatch producer)
    : producer_(std::move(producer)),
      mapping_(fd, size_of_file(fd), Pages::later),
      capacity_(size_of_file(fd) - kHeaderBytes) {
  RingHeader& header = mapping_.header();
  if (header.magic != kRingMagic || header.version != kRingVersion ||
      header.capacity != capacity_) {
    throw Trouble("ring", "shared memory", "is of another version, install all of ttrace again");
  }
  pthread_mutex_lock(&header.consumer_lives);
}

RingConsumer::~RingConsumer() { pthread_mutex_unlock(&mapping_.header().consumer_lives); }

void RingConsumer::announce(ConsumerState state, int error, std::string_view message) {
  RingHeader& header = mapping_.header();
  header.error = error;
  const std::size_t length = std::min(message.size(), sizeof header.message - 1);
  if (length != 0) std::memcpy(header.message, message.data(), length);
  header.message[length] = '\0';
  header.state.store(static_cast<std::uint32_t>(state));
  syscall(SYS_futex, &header.state, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

std::uint64_t RingConsumer::available() const {
  const std::uint64_t bytes = mapping_.header().head.load() - read_;
  if (bytes > capacity_) {
    throw Trouble("ring", "shared memory", "was overwritten by the traced process");
  }
  return bytes;
}

bool RingConsumer::wait(Milliseconds limit) {
  RingHeader& header = mapping_.header();
  const auto end = Clock::now() + limit;
  for (bool napped = false; available() == 0; napped = true) {
    // Dead and still nothing: nothing will come. What it published last is seen by the next look.
    if (producer_.dead()) return true;
    const auto left = std::chrono::duration_cast<Milliseconds>(end - Clock::now());
    if (left.count() <= 0) return false;
    const std::uint32_t bell = header.head_bell.load();
    if (!napped) {
      futex_wait(header.head_bell, bell, kNap);
      continue;
    }
    header.consumer_sleeps.store(1);
    if (available() == 0) futex_wait(header.head_bell, bell, std::min(kHeartbeat, left));
    header.consumer_sleeps.store(0);
  }
  return true;
}

std::span<const std::byte> RingConsumer::peek(std::size_t want) {
  while (!wait(Milliseconds(60000))) {
  }
  const std::uint64_t at = read_ % capacity_;
  const auto piece = std::min<std::uint64_t>({want, available(), capacity_ - at});
  return {mapping_.data() + at, static_cast<std::size_t>(piece)};
}

void RingConsumer::consume(std::size_t bytes) {
  RingHeader& header = mapping_.header();
  read_ += bytes;
  header.tail.store(read_);
  const std::uint64_t wanted = header.room_wanted.load();
  if (wanted != 0 && capacity_ - (header.head.load() - read_) >= wanted)
    ring_bell(header.tail_bell);
}

bool RingConsumer::read(std::span<std::byte> into) {
  while (!into.empty()) {
    const std::span<const std::byte> piece = peek(into.size());
    if (piece.empty()) return false;
    std::memcpy(into.data(), piece.data(), piece.size());
    consume(piece.size());
    into = into.subspan(piece.size());
  }
  return true;
}

}  // namespace ttrace
