// An all-reduce whose replicas are ranks, here threads: each of them ends with the bits of the op in one process, and
// sends the bytes that its schedule counts.
#include <ampscope/sim/backend/cpu/all_reduce.h>
#include <ampscope/sim/backend/cpu/ranked_all_reduce.h>

#include "thread_ranks.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <bit>
#include <random>
#include <thread>

using namespace amp;
using namespace amp::test;

namespace {

/// A gradient of a replica: numbers of all sizes, and in some some that are zero, infinite or NaN.
std::vector<float> gradient(std::size_t length, int kind, int replica) {
    std::mt19937 words(static_cast<unsigned>(length) * 64 + static_cast<unsigned>(kind) * 8 +
                       static_cast<unsigned>(replica));
    std::vector<float> x(length);
    for (float& value : x) {
        const auto word = static_cast<std::uint32_t>(words());
        if (kind == 2) value = std::bit_cast<float>(word); // any float
        else value = std::ldexp(static_cast<float>(static_cast<std::int32_t>(word)), kind == 0 ? -36 : -50);
        if (kind == 1 && word % 5 == 0) value = word % 2 == 0 ? -0.0F : 0.0F;
    }
    return x;
}

struct Case {
    AllReduceOptions options;
    int replicas;
    std::size_t length;
    int kind;

    [[nodiscard]] std::string name() const {
        return fmt::format("{} of {} {}s, {} replicas, division {}{}, kind {}", row_of(options.order).name, length,
                           options.payload().name(), replicas, static_cast<int>(options.division),
                           options.scaled ? ", scaled" : "", kind);
    }
    [[nodiscard]] op::AllReduce op() const {
        return {.in = std::vector<TensorId>(static_cast<std::size_t>(replicas)),
                .out = {},
                .order = options.order,
                .division = options.division,
                .transport = options.transport,
                .scaled = options.scaled,
                .blocks = options.blocks,
                .gathers = true};
    }
};

bool is_allowed(const AllReduceOptions& options) {
    try {
        check(options);
        return true;
    } catch (const std::invalid_argument&) {
        return false;
    }
}

std::vector<Case> all_cases() {
    std::vector<Payload> payloads;
    for (const char* name : {"fp32", "tf32", "fp16", "bf16", "e4m3", "e5m2", "e4m3fnuz", "e3m2"})
        payloads.push_back(payload_of(name));
    for (const BlockSpec& row : block_formats) payloads.push_back({fp32_format(), &row});
    std::vector<Case> cases;
    for (std::size_t order = 0; order < all_reduce_rows.size(); ++order)
        for (std::size_t division = 0; division < all_reduce_divisions.size(); ++division)
            for (const Payload& payload : payloads)
                for (const bool scaled : {false, true}) {
                    const AllReduceOptions options{.order = static_cast<AllReduceOrder>(order),
                                                   .division = static_cast<AllReduceDivision>(division),
                                                   .transport = payload.format,
                                                   .scaled = scaled,
                                                   .blocks = payload.blocks};
                    if (!is_allowed(options)) continue;
                    for (const int replicas : {2, 3, 4, 6, 8})
                        for (const int length : {1, 7, 150}) // some chunks are empty, or uneven
                            cases.push_back({options, replicas, static_cast<std::size_t>(length),
                                             static_cast<int>(cases.size() % 3)});
                }
    return cases;
}

/// What a rank does in a case: all_reduce() with messages, and the bytes that it sent.
struct Ranked {
    std::vector<float> mean;
    double bytes = 0;
};

Ranked reduce(const Case& c, ThreadRanks& ranks, int replica) {
    Ranked result;
    const auto share = [&](float amax) { // around the ring, bit for bit
        auto most = std::bit_cast<std::uint32_t>(amax);
        std::vector<std::byte> passed(sizeof most);
        std::memcpy(passed.data(), &amax, sizeof most);
        for (int i = 1; i < c.replicas; ++i) {
            passed = ranks.exchange((replica + 1) % c.replicas, passed, (replica + c.replicas - 1) % c.replicas);
            std::uint32_t theirs = 0;
            std::memcpy(&theirs, passed.data(), sizeof theirs);
            most = std::max(most, theirs);
        }
        return std::bit_cast<float>(most);
    };
    const auto exchange = [&](const Exchange& e) {
        result.bytes += static_cast<double>(e.bytes.size());
        if (e.to) ranks.send(*e.to, e.bytes);
        return e.from ? ranks.receive(*e.from).second : std::vector<std::byte>();
    };
    result.mean = ranked_all_reduce(c.op(), gradient(c.length, c.kind, replica), replica, share, exchange);
    return result;
}

bool same_bits(float a, float b) { return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b); }

} // namespace

TEST_CASE("every algorithm, division and payload: the bits of the op in one process, the bytes of its schedule") {
    const std::vector<Case> cases = all_cases();
    std::vector<std::vector<Ranked>> found(8, std::vector<Ranked>(cases.size()));
    Post post(8);
    {
        std::vector<std::jthread> threads;
        for (int replica = 0; replica < 8; ++replica)
            threads.emplace_back([&, replica] {
                ThreadRanks ranks(post, replica, 8);
                for (std::size_t i = 0; i < cases.size(); ++i)
                    if (replica < cases[i].replicas)
                        found[static_cast<std::size_t>(replica)][i] = reduce(cases[i], ranks, replica);
            });
    }
    std::uint64_t elements = 0, mismatches = 0;
    for (std::size_t i = 0; i < cases.size(); ++i) {
        const Case& c = cases[i];
        std::vector<std::vector<float>> gradients;
        for (int r = 0; r < c.replicas; ++r) gradients.push_back(gradient(c.length, c.kind, r));
        const std::vector<float> mean =
            all_reduced(c.options, std::vector<std::span<const float>>(gradients.begin(), gradients.end()), 1);
        double bytes = 0;
        for (std::size_t r = 0; r < gradients.size(); ++r) {
            const Ranked& of_rank = found[r][i];
            REQUIRE(of_rank.mean.size() == mean.size());
            for (std::size_t k = 0; k < mean.size(); ++k, ++elements)
                mismatches += same_bits(of_rank.mean[k], mean[k]) ? 0 : 1;
            CHECK_MESSAGE(std::ranges::equal(of_rank.mean, mean, same_bits), c.name(), ", rank ", r);
            bytes = std::max(bytes, of_rank.bytes);
        }
        if (row_of(c.options.order).in_switch) continue; // which is not there
        const Schedule schedule(c.options.order, c.replicas);
        const double counted =
            traffic_of(schedule, c.options.payload(), static_cast<std::int64_t>(c.length), 0, schedule.steps()).bytes;
        CHECK_MESSAGE(bytes == counted, c.name());
    }
    fmt::print("proof: all-reduce on ranks: {} elements in {} cases, {} mismatches\n", elements, cases.size(),
               mismatches);
    CHECK(cases.size() > 5000);
}
