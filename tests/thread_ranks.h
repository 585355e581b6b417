// Ranks that are threads of one process, for tests of what processes do together.
#pragma once

#include <ampscope/sim/base/ranks.h>

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace amp::test {

/// Letter boxes of ranks that are threads.
class Post {
  public:
    explicit Post(int ranks)
        : boxes_(static_cast<std::size_t>(ranks)), sent_(static_cast<std::size_t>(ranks)),
          last_(static_cast<std::size_t>(ranks)) {}

    void put(int from, int to, std::span<const std::byte> bytes) {
        const std::lock_guard lock(mutex_);
        boxes_[static_cast<std::size_t>(to)].emplace_back(from, std::vector(bytes.begin(), bytes.end()));
        sent_[static_cast<std::size_t>(from)] += bytes.size();
        last_[static_cast<std::size_t>(from)].assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        arrived_.notify_all();
    }
    std::pair<int, std::vector<std::byte>> take(int to, int from) {
        std::unique_lock lock(mutex_);
        std::deque<std::pair<int, std::vector<std::byte>>>& box = boxes_[static_cast<std::size_t>(to)];
        const auto wanted = [&](const auto& letter) { return from == Ranks::anyone || letter.first == from; };
        for (;;) {
            const auto letter = std::ranges::find_if(box, wanted);
            if (letter == box.end()) {
                arrived_.wait(lock);
                continue;
            }
            std::pair<int, std::vector<std::byte>> taken = std::move(*letter);
            box.erase(letter);
            return taken;
        }
    }
    [[nodiscard]] std::uint64_t sent(int rank) const { return sent_[static_cast<std::size_t>(rank)]; }
    /// The last message that a rank has sent.
    [[nodiscard]] const std::string& last(int rank) const { return last_[static_cast<std::size_t>(rank)]; }

  private:
    std::mutex mutex_;
    std::condition_variable arrived_;
    std::vector<std::deque<std::pair<int, std::vector<std::byte>>>> boxes_;
    std::vector<std::uint64_t> sent_;
    std::vector<std::string> last_;
};

class ThreadRanks : public Ranks {
  public:
    ThreadRanks(Post& post, int rank, int size) : post_(post), rank_(rank), size_(size) {}
    [[nodiscard]] int rank() const override { return rank_; }
    [[nodiscard]] int size() const override { return size_; }
    void send(int to, std::span<const std::byte> bytes) override { post_.put(rank_, to, bytes); }
    std::vector<std::byte> exchange(int to, std::span<const std::byte> bytes, int from) override {
        send(to, bytes);
        return receive(from).second;
    }
    std::pair<int, std::vector<std::byte>> receive(int from) override { return post_.take(rank_, from); }

  private:
    void end_all(int) override {}

    Post& post_;
    int rank_, size_;
};

} // namespace amp::test
