#include <ampscope/sim/program/collective.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>

namespace amp {

namespace {

int power_below(int n) { return static_cast<int>(std::bit_floor(static_cast<unsigned>(n))); }
int log2_of(int power) { return std::countr_zero(static_cast<unsigned>(power)); }

} // namespace

Schedule::Schedule(AllReduceOrder order, int replicas)
    : order_(order), replicas_(replicas), chunks_(1), reducing_(0), steps_(0), power_(power_below(replicas)),
      paired_(replicas - power_) {
    if (replicas < 1) throw std::invalid_argument("[all-reduce] expected replicas of at least 1");
    const int others = replicas - 1, pairing = paired_ > 0 ? 1 : 0, bits = log2_of(power_);
    switch (order) {
    case AllReduceOrder::tree:
        reducing_ = bits + pairing;
        steps_ = 2 * reducing_;
        return;
    case AllReduceOrder::halving_doubling:
        chunks_ = power_;
        reducing_ = pairing + bits;
        steps_ = 2 * reducing_;
        return;
    case AllReduceOrder::doubling:
        reducing_ = pairing + bits;
        steps_ = reducing_ + pairing;
        return;
    case AllReduceOrder::one_shot: reducing_ = steps_ = others; return;
    case AllReduceOrder::ring:
    case AllReduceOrder::all_to_all:
    case AllReduceOrder::exact:
        chunks_ = replicas;
        reducing_ = others;
        steps_ = 2 * others;
        return;
    }
}

ElementRange Schedule::chunk(int c, std::int64_t elements) const {
    const std::int64_t length = elements / chunks_, longer = elements % chunks_;
    const std::int64_t begin = c * length + std::min<std::int64_t>(c, longer);
    return {begin, begin + length + (c < longer ? 1 : 0)};
}

/// The rank of a replica that takes part after the first 2 * paired_ replicas were paired: of a pair the odd one does.
int Schedule::halving_rank(int folded) const { return folded < paired_ ? 2 * folded + 1 : folded + paired_; }

/// Of the first 2 * paired_ replicas, the even ones give all that they have to their neighbours, or get it back.
void Schedule::add_pairs(std::vector<Transfer>& all, bool back) const {
    for (int r = 0; r < 2 * paired_; r += 2)
        all.push_back({.from = back ? r + 1 : r,
                       .to = back ? r : r + 1,
                       .chunk = 0,
                       .chunks = chunks_,
                       .receive = back ? Receive::store : Receive::add});
}

/// Replicas whose ranks differ in the bit `mask` exchange what the other is to have. With chunks, a replica has a
/// power_ / mask-th of them, of which those with the bit keep the upper half; it has this half when it gathers.
void Schedule::add_exchange(std::vector<Transfer>& all, int mask, Receive receive) const {
    for (int n = 0; n < power_; ++n) {
        const int other = n ^ mask;
        Transfer t{.from = halving_rank(n), .to = halving_rank(other), .chunk = 0, .chunks = 1, .receive = receive};
        if (chunks_ > 1) {
            t.chunks = power_ / (2 * mask);
            const int owner = receive == Receive::add ? other : n; // whose half it is
            for (int bit = 1; bit <= mask; bit *= 2) t.chunk += (owner & bit) != 0 ? power_ / (2 * bit) : 0;
        }
        all.push_back(t);
    }
}

std::vector<Transfer> Schedule::step(int i) const {
    std::vector<Transfer> all;
    const bool reduces = i < reducing_;
    const int n = replicas_;
    switch (order_) {
    case AllReduceOrder::ring: { // chunk c begins at replica c + 1, and its sum lies with replica c
        const int hop = reduces ? i : i - reducing_, first = reduces ? 1 : 0;
        for (int c = 0; c < n; ++c)
            all.push_back({.from = (c + first + hop) % n,
                           .to = (c + first + hop + 1) % n,
                           .chunk = c,
                           .chunks = 1,
                           .receive = reduces ? Receive::add : Receive::store});
        return all;
    }
    case AllReduceOrder::tree: {
        const int level = reduces ? i : steps_ - 1 - i, apart = 1 << level;
        for (int r = 0; r + apart < n; r += 2 * apart)
            all.push_back({.from = reduces ? r + apart : r,
                           .to = reduces ? r : r + apart,
                           .chunk = 0,
                           .chunks = 1,
                           .receive = reduces ? Receive::add : Receive::store});
        return all;
    }
    case AllReduceOrder::halving_doubling:
    case AllReduceOrder::doubling: {
        const int pairing = paired_ > 0 ? 1 : 0, bits = log2_of(power_);
        if (pairing == 1 && (i == 0 || i == steps_ - 1)) add_pairs(all, i > 0);
        else if (reduces) add_exchange(all, 1 << (i - pairing), Receive::add);
        else add_exchange(all, 1 << (bits - 1 - (i - reducing_)), Receive::store);
        return all;
    }
    case AllReduceOrder::one_shot:
    case AllReduceOrder::all_to_all:
    case AllReduceOrder::exact: { // replica r exchanges with r + 1, then with r + 2 ...
        const bool whole = order_ == AllReduceOrder::one_shot;
        const int apart = (reduces ? i : i - reducing_) + 1;
        for (int r = 0; r < n; ++r) {
            const int to = (r + apart) % n;
            all.push_back({.from = r,
                           .to = to,
                           .chunk = whole     ? 0
                                    : reduces ? to
                                              : r,
                           .chunks = 1,
                           .receive = reduces ? Receive::keep : Receive::store});
        }
        return all;
    }
    }
    return all;
}

std::vector<ChunkSum> sums_of(const Schedule& schedule) {
    const auto chunks = static_cast<std::size_t>(schedule.chunks());
    std::vector<ChunkSum> sums(chunks);
    // Backwards from the end: whether the chunk of a replica, as it is after a step, is part of the result.
    std::vector<char> counts(static_cast<std::size_t>(schedule.replicas()) * chunks);
    std::fill_n(counts.begin(), chunks, char{1});
    const auto at = [&](int replica, std::size_t c) -> char& {
        return counts[static_cast<std::size_t>(replica) * chunks + c];
    };
    std::vector<std::pair<int, std::size_t>> sent; // whose chunks count before the step
    for (int i = schedule.steps() - 1; i >= 0; --i) {
        sent.clear();
        for (const Transfer& t : schedule.step(i))
            for (auto c = static_cast<std::size_t>(t.chunk); c < static_cast<std::size_t>(t.chunk + t.chunks); ++c) {
                if (t.receive == Receive::keep || at(t.to, c) == 0) continue;
                sent.emplace_back(t.from, c);
                if (t.receive == Receive::add) {
                    sums[c].additions.push_back({t.from, t.to});
                } else {
                    at(t.to, c) = 0;
                    sums[c].owner = t.from;
                }
            }
        for (const auto& [replica, c] : sent) at(replica, c) = 1;
    }
    for (ChunkSum& sum : sums) std::ranges::reverse(sum.additions);
    return sums;
}

std::string names_of_orders(bool AllReduceRow::*property) {
    std::string all;
    for (const AllReduceRow& row : all_reduce_rows)
        if (row.*property) all += (all.empty() ? "" : ", ") + std::string(row.name);
    return all;
}

Payload payload_of(std::string_view name) {
    for (const BlockSpec& row : block_formats)
        if (name == row.name) return {fp32_format(), &row};
    try {
        return {format(name), nullptr};
    } catch (const std::invalid_argument& error) {
        throw std::invalid_argument(std::string(error.what()) + "; or blocks: " + names_of_rows(block_formats));
    }
}

double Payload::bytes(std::int64_t numbers) const {
    if (blocks == nullptr) return std::ceil(static_cast<double>(numbers) * format.bits() / 8);
    return bytes({0, numbers}, scaling_of(*blocks).grid(1, numbers));
}

double Payload::bytes(const ElementRange& part, const BlockGrid& grid) const {
    if (part.count() == 0) return 0;
    if (blocks == nullptr) return bytes(part.count());
    const int zero_point = blocks->rule == ScaleRule::affine ? blocks->element.bits() : 0,
              upper = has_upper_scales(blocks->rule) ? 32 : 0;
    const auto scales = static_cast<double>(grid.with_elements(part.begin, part.end));
    return std::ceil((static_cast<double>(part.count()) * blocks->element.bits() +
                      scales * (scale_format(blocks->rule).bits() + zero_point) + upper) /
                     8);
}

Traffic traffic_of(const Schedule& schedule, std::span<const double> bytes_of_chunks, int begin, int end) {
    std::vector<Traffic> all(static_cast<std::size_t>(schedule.replicas()));
    for (int i = begin; i < end; ++i) {
        if (row_of(schedule.order()).in_switch && i > schedule.reducing_steps()) break; // the switch multicasts
        for (const Transfer& t : schedule.step(i)) {
            Traffic& sender = all[static_cast<std::size_t>(t.from)];
            ++sender.messages;
            for (int c = t.chunk; c < t.chunk + t.chunks; ++c)
                sender.bytes += bytes_of_chunks[static_cast<std::size_t>(c)];
        }
    }
    return *std::ranges::max_element(all, {}, &Traffic::bytes);
}

Traffic traffic_of(const Schedule& schedule, const Payload& payload, std::int64_t elements, int begin, int end) {
    std::vector<double> bytes;
    for (int c = 0; c < schedule.chunks(); ++c) bytes.push_back(payload.bytes(schedule.chunk(c, elements).count()));
    return traffic_of(schedule, bytes, begin, end);
}

} // namespace amp
