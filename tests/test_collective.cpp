// Every algorithm that adds up replicas' gradients, against its definition in exact rationals, rounded hop by hop; and
// its schedule, run on the memory of every replica as processes run it.
#include "oracle_collective.h"
#include "sweep.h"

#include <ampscope/formats/environment.h>
#include <ampscope/sim/backend/cpu/cpu.h>
#include <ampscope/sim/program/training_program.h>

#include <doctest/doctest.h>

#include <cfloat>
#include <cmath>
#include <map>
#include <span>

using namespace amp;
using namespace amp::test;

namespace {

constexpr AllReduceOrder all_orders[] = {
    AllReduceOrder::ring,     AllReduceOrder::tree,     AllReduceOrder::halving_doubling,
    AllReduceOrder::doubling, AllReduceOrder::one_shot, AllReduceOrder::all_to_all,
    AllReduceOrder::exact};
static_assert(std::size(all_orders) == all_reduce_rows.size());

/// The number of elements before each chunk ends, by counting.
std::size_t chunk_of(std::size_t element, std::size_t count, std::size_t chunks) {
    std::size_t end = 0;
    for (std::size_t c = 0;; ++c) {
        end += count / chunks + (c < count % chunks ? 1 : 0);
        if (element < end) return c;
    }
}

/// Numbers about that large. Some are edges of FP32, or of the format with that largest number.
Numbers numbers(std::size_t count, std::uint32_t seed, double size, double max, bool edges) {
    Numbers all;
    std::uint32_t x = seed * 2654435761U + 1;
    const auto next = [&] { return x = x * 1664525 + 1013904223; };
    for (std::size_t i = 0; i < count; ++i) {
        const double fraction = (next() >> 8) * 0x1p-24, exponent = static_cast<double>((next() >> 16) % 12);
        auto value = static_cast<float>(size * (1 + fraction) * std::exp2(-exponent));
        const float special[] = {std::nanf(""),           HUGE_VALF, -HUGE_VALF, 0.0F, -0.0F, 0x1p-149F, 0x1p-130F,
                                 static_cast<float>(max), FLT_MAX,   -0x1.8p-24F};
        if (edges && next() % 3 == 0) value = special[(next() >> 8) % std::size(special)];
        all.push_back((next() >> 12) % 2 == 0 ? value : -value);
    }
    return all;
}

struct Case {
    op::AllReduce op{};
    std::vector<Numbers> gradients{};

    /// The op's result.
    [[nodiscard]] Numbers run(int threads = 1) {
        Program program;
        op.in.clear();
        for (std::size_t i = 0; i <= gradients.size(); ++i) {
            const TensorId id{static_cast<std::int32_t>(i)};
            program.tensors.push_back({.name = fmt::format("{}", i),
                                       .shape = {static_cast<std::int64_t>(gradients[0].size())},
                                       .format = format("fp32")});
            if (i < gradients.size()) op.in.push_back(id);
            else op.out = id;
        }
        Cpu cpu(program, threads);
        for (std::size_t i = 0; i < gradients.size(); ++i) std::ranges::copy(gradients[i], cpu[op.in[i]].begin());
        amp::op::run(cpu, op);
        return {cpu[op.out].begin(), cpu[op.out].end()};
    }
};

/// What a replica sends of x.
float sent(const Exactly& math, AllReduceDivision division, float x, std::size_t replicas) {
    const auto n = static_cast<float>(replicas);
    switch (division) {
    case AllReduceDivision::before: return math.quotient(x, n);
    case AllReduceDivision::after: return math.stored(x);
    case AllReduceDivision::nccl_avg: return math.product(math.stored(x), math.stored(Exactly{}.quotient(1, n)));
    }
    return 0;
}

} // namespace

TEST_CASE("the mean of replicas by every algorithm, division and format, rounded hop by hop") {
    const FloatEnvironment environment;
    Tally tally;
    for (const char* transport : {"fp32", "bf16", "fp16", "e5m2", "e4m3"})
        for (const AllReduceOrder order : all_orders)
            for (const auto division :
                 {AllReduceDivision::before, AllReduceDivision::after, AllReduceDivision::nccl_avg})
                for (const std::size_t replicas : {1U, 2U, 3U, 4U, 5U, 6U, 7U, 8U, 11U})
                    for (const std::size_t count : {5U, 31U}) {
                        if (under_sanitizers && count > 5) continue; // the definition's rationals take the time
                        const double max = oracle::find(transport).max;
                        Case c{.op = {.in = {},
                                      .out = {},
                                      .order = order,
                                      .division = division,
                                      .transport = format(transport)}};
                        for (std::size_t r = 0; r < replicas; ++r)
                            c.gradients.push_back(numbers(count, static_cast<std::uint32_t>(r + 1),
                                                          r % 3 == 2 ? std::min(max / 3, 1e38) : 1, max, r % 2 == 1));
                        const Numbers got = c.run();
                        const Definition definition{order, {transport}};
                        const std::size_t chunks =
                            static_cast<std::size_t>(Schedule(order, static_cast<int>(replicas)).chunks());
                        for (std::size_t i = 0; i < count; ++i) {
                            Numbers x;
                            for (const Numbers& g : c.gradients)
                                x.push_back(sent(definition.math, division, g[i], replicas));
                            float want = definition.sum(x, chunk_of(i, count, chunks));
                            if (division == AllReduceDivision::after)
                                want = definition.math.quotient(want, static_cast<float>(replicas));
                            tally.expect(got[i], want, [&] {
                                return fmt::format("{} of {} in {}, {} [{}]", row_of(order).name, replicas, transport,
                                                   all_reduce_division_names[static_cast<std::size_t>(division)], i);
                            });
                        }
                    }
    report("all-reduce, hop by hop", tally);
    CHECK(tally.mismatches == 0);
}

namespace {

/// The memory of every replica while a schedule runs. Each message is cast by its sender; what is passed on is not cast
/// again.
struct Processes {
    const Schedule& schedule;
    const BlockSpec* blocks;
    Exactly math;
    std::vector<Numbers> memory;
    std::map<std::pair<int, int>, std::vector<Numbers>> kept{}; ///< by receiver and chunk: by sender
    std::map<std::pair<int, int>, bool> is_read{};              ///< whether a chunk was received as it is

    [[nodiscard]] Numbers message(int from, int chunk) {
        const ElementRange range = schedule.chunk(chunk, std::ssize(memory[0]));
        Numbers& all = memory[static_cast<std::size_t>(from)];
        Numbers numbers(all.begin() + range.begin, all.begin() + range.end);
        if (blocks != nullptr && !is_read[{from, chunk}]) cast_message(*blocks, numbers.data(), numbers.size());
        return numbers;
    }
    void add_kept() {
        for (auto& [at, all] : kept) {
            const ElementRange range = schedule.chunk(at.second, std::ssize(memory[0]));
            all[static_cast<std::size_t>(at.first)] = message(at.first, at.second);
            for (std::int64_t i = 0; i < range.count(); ++i) {
                Numbers x;
                for (const Numbers& of : all) x.push_back(of[static_cast<std::size_t>(i)]);
                memory[static_cast<std::size_t>(at.first)][static_cast<std::size_t>(range.begin + i)] =
                    Definition{schedule.order(), math}.sum(x, 0);
            }
        }
        kept.clear();
    }
    void run() {
        for (int s = 0; s < schedule.steps(); ++s) {
            if (s == schedule.reducing_steps()) add_kept();
            const std::vector<Transfer> all = schedule.step(s);
            std::vector<int> sends(memory.size()), receives(memory.size());
            std::vector<std::vector<Numbers>> messages;
            for (const Transfer& t : all) {
                REQUIRE(t.from != t.to);
                CHECK(++sends[static_cast<std::size_t>(t.from)] == 1); // so that MPI_Sendrecv can do it
                CHECK(++receives[static_cast<std::size_t>(t.to)] == 1);
                CHECK((t.receive == Receive::store) == (s >= schedule.reducing_steps()));
                messages.emplace_back();
                for (int c = t.chunk; c < t.chunk + t.chunks; ++c) messages.back().push_back(message(t.from, c));
            }
            if (blocks != nullptr && s >= schedule.reducing_steps()) // the owner reads what it sends
                for (std::size_t i = 0; i < all.size(); ++i) store(all[i].from, all[i], messages[i]);
            for (std::size_t i = 0; i < all.size(); ++i) receive(all[i], messages[i]);
        }
        if (schedule.steps() == schedule.reducing_steps()) add_kept();
    }
    void store(int to, const Transfer& t, const std::vector<Numbers>& message) {
        for (int c = 0; c < t.chunks; ++c) {
            is_read[{to, t.chunk + c}] = true;
            std::ranges::copy(message[static_cast<std::size_t>(c)],
                              memory[static_cast<std::size_t>(to)].begin() +
                                  schedule.chunk(t.chunk + c, std::ssize(memory[0])).begin);
        }
    }
    void receive(const Transfer& t, const std::vector<Numbers>& message) {
        if (t.receive == Receive::store) return store(t.to, t, message);
        for (int c = 0; c < t.chunks; ++c) {
            const Numbers& numbers = message[static_cast<std::size_t>(c)];
            if (t.receive == Receive::keep) {
                auto& all = kept[{t.to, t.chunk + c}];
                all.resize(memory.size());
                all[static_cast<std::size_t>(t.from)] = numbers;
                continue;
            }
            const auto begin = static_cast<std::size_t>(schedule.chunk(t.chunk + c, std::ssize(memory[0])).begin);
            Numbers& own = memory[static_cast<std::size_t>(t.to)];
            for (std::size_t i = 0; i < numbers.size(); ++i) own[begin + i] = math.sum(own[begin + i], numbers[i]);
        }
    }
};

} // namespace

TEST_CASE("schedules on the memory of every replica, with blocks and without: all end with the op's bits") {
    const FloatEnvironment environment;
    Tally tally;
    for (const char* blocks : {"", "mxfp8", "mxfp8-e5m2", "mxfp4", "nvfp4", "fp8-tensor", "fp8-1x128"})
        for (const AllReduceOrder order : all_orders) {
            if (*blocks != 0 && !row_of(order).takes_blocks) continue;
            for (const std::size_t replicas : {1U, 2U, 3U, 4U, 5U, 6U, 8U, 13U})
                for (const bool edges : {false, true}) {
                    if (under_sanitizers && replicas > 5) continue;
                    Case c{.op = {.in = {},
                                  .out = {},
                                  .order = order,
                                  .division = AllReduceDivision::before,
                                  .transport = format(*blocks == 0 ? "bf16" : "fp32")}};
                    const BlockSpec* const spec = *blocks == 0 ? nullptr : &block_format(blocks);
                    c.op.blocks = spec;
                    constexpr std::size_t count = 83;
                    for (std::size_t r = 0; r < replicas; ++r)
                        c.gradients.push_back(numbers(count, static_cast<std::uint32_t>(r + 7), 1, 3, edges && r < 2));
                    const Numbers got = c.run();
                    const Schedule schedule(order, static_cast<int>(replicas));
                    Processes processes{schedule, spec, {c.op.transport.name}, {}};
                    for (const Numbers& g : c.gradients) {
                        processes.memory.emplace_back();
                        for (const float x : g)
                            processes.memory.back().push_back(
                                sent(processes.math, AllReduceDivision::before, x, replicas));
                    }
                    processes.run();
                    for (std::size_t r = 0; r < replicas; ++r)
                        for (std::size_t i = 0; i < count; ++i)
                            tally.expect(processes.memory[r][i], got[i], [&] {
                                return fmt::format("{} of {} in {}, replica {} [{}]", row_of(order).name, replicas,
                                                   *blocks == 0 ? "bf16" : blocks, r, i);
                            });
                    const Numbers again = c.run(3);
                    CHECK(std::ranges::equal(std::as_bytes(std::span(again)), std::as_bytes(std::span(got))));
                }
        }
    report("all-reduce on every replica", tally);
    CHECK(tally.mismatches == 0);
}

TEST_CASE("a quotient is no product with 1 / N: 98 replicas, and quotients half-way between two numbers") {
    const FloatEnvironment environment;
    for (const char* transport : {"bf16", "fp16"})
        for (const auto division : {AllReduceDivision::before, AllReduceDivision::after}) {
            CAPTURE(transport);
            const oracle::Facts& f = oracle::find(transport);
            Case c{.op = {.in = {}, .out = {}, .division = division, .transport = format(transport)}};
            c.gradients.assign(98, Numbers(2));
            const float unit = std::ldexp(1.0F, 1 - f.bias - f.fraction_bits); // numbers near zero are multiples of it
            c.gradients[0] = {98 * (1 + 3 * std::ldexp(0.5F, -f.fraction_bits)), 98 * 1.5F * unit};
            const Exactly math{transport};
            const float normal = math.quotient(
                division == AllReduceDivision::after ? math.stored(c.gradients[0][0]) : c.gradients[0][0], 98);
            CHECK(c.run() == Numbers{normal, 2 * unit});
        }
}

TEST_CASE("MS-AMP's scale with every algorithm: sums saturate, and the mean is divided out once") {
    const FloatEnvironment environment;
    Tally tally;
    for (const AllReduceOrder order : all_orders)
        for (const std::size_t replicas : {1U, 2U, 3U, 5U, 8U}) {
            Case c{.op = {.in = {}, .out = {}, .order = order, .transport = format("e4m3"), .scaled = true}};
            float amax = 0;
            for (std::uint32_t r = 0; r < replicas; ++r) {
                c.gradients.push_back(numbers(50, r, 1, 3, false));
                for (std::size_t i = 0; i < 10; ++i) c.gradients.back()[i] = 2; // so that their sum saturates
                for (const float x : c.gradients.back()) amax = std::max(amax, std::fabs(x));
            }
            const auto n = static_cast<float>(replicas);
            const float scale = std::ldexp(1.0F, std::ilogb(448 / amax)) *
                                static_cast<float>(1 / std::sqrt(static_cast<double>(replicas)));
            const float inverse = 1 / scale / n;
            const Definition definition{order, {"e4m3", {.overflow = Overflow::saturate_all}}};
            const Numbers got = c.run();
            const auto chunks = static_cast<std::size_t>(Schedule(order, static_cast<int>(replicas)).chunks());
            for (std::size_t i = 0; i < got.size(); ++i) {
                Numbers x;
                for (const Numbers& g : c.gradients) x.push_back(definition.math.stored(g[i] * scale));
                tally.expect(got[i], definition.sum(x, chunk_of(i, got.size(), chunks)) * inverse,
                             [&] { return fmt::format("{} of {} [{}]", row_of(order).name, replicas, i); });
            }
        }
    report("all-reduce under MS-AMP's scale", tally);
    CHECK(tally.mismatches == 0);
}

TEST_CASE("a reduce-scatter leaves with their owners what an all-reduce would cast once more") {
    const FloatEnvironment environment;
    for (const AllReduceOrder order : all_orders)
        for (const char* blocks : {"mxfp8", "nvfp4"}) {
            if (!row_of(order).takes_blocks || !row_of(order).scatters) continue;
            CAPTURE(row_of(order).name);
            const BlockSpec& spec = block_format(blocks);
            Case c{.op = {.in = {}, .out = {}, .order = order, .blocks = &spec, .gathers = false}};
            for (std::uint32_t r = 0; r < 4; ++r) c.gradients.push_back(numbers(150, r, 1, 3, false));
            Numbers scattered = c.run();
            c.op.gathers = true;
            const Numbers gathered = c.run();
            CHECK(gathered != scattered);
            const Schedule schedule(order, 4);
            for (int chunk = 0; chunk < schedule.chunks(); ++chunk) {
                const ElementRange range = schedule.chunk(chunk, std::ssize(scattered));
                cast_message(spec, scattered.data() + range.begin, static_cast<std::size_t>(range.count()));
            }
            CHECK(gathered == scattered);
        }
}

TEST_CASE("what replicas send") {
    const Payload fp32{}, bf16 = payload_of("bf16"), mxfp8 = payload_of("mxfp8");
    const auto sends = [](AllReduceOrder order, int replicas, const Payload& payload, std::int64_t elements) {
        const Schedule s(order, replicas);
        return traffic_of(s, payload, elements, 0, s.steps());
    };
    CHECK(mxfp8.bytes(0) == 0);
    CHECK(mxfp8.bytes(64) == 66);
    CHECK(mxfp8.bytes(65) == 68);
    CHECK(payload_of("nvfp4").bytes(48) == 24 + 3 + 4);
    CHECK_THROWS_WITH_AS(payload_of("mxfp9"), doctest::Contains("bf16, e4m3"), std::invalid_argument);
    CHECK_THROWS_WITH_AS(payload_of("mxfp9"), doctest::Contains("; or blocks: mxfp8, "), std::invalid_argument);
    for (const int n : {1, 2, 4, 8, 16, 64}) {
        CAPTURE(n);
        const std::int64_t elements = 640 * n;
        const double bytes = 4.0 * static_cast<double>(elements), share = bytes * (n - 1) / n;
        const int bits = std::countr_zero(static_cast<unsigned>(n));
        CHECK(sends(AllReduceOrder::ring, n, fp32, elements).bytes == 2 * share);
        CHECK(sends(AllReduceOrder::ring, n, fp32, elements).messages == 2 * (n - 1));
        CHECK(sends(AllReduceOrder::ring, n, bf16, elements).bytes == share);
        CHECK(sends(AllReduceOrder::ring, n, mxfp8, elements).bytes == 2 * (n - 1) * (640 + 20));
        CHECK(sends(AllReduceOrder::tree, n, fp32, elements).bytes == bits * bytes);
        CHECK(sends(AllReduceOrder::halving_doubling, n, fp32, elements).bytes == 2 * share);
        CHECK(sends(AllReduceOrder::halving_doubling, n, fp32, elements).messages == 2 * bits);
        CHECK(sends(AllReduceOrder::doubling, n, fp32, elements).bytes == bits * bytes);
        CHECK(sends(AllReduceOrder::one_shot, n, fp32, elements).bytes == (n - 1) * bytes);
        CHECK(sends(AllReduceOrder::all_to_all, n, fp32, elements).bytes == 2 * share);
        CHECK(sends(AllReduceOrder::exact, n, fp32, elements).bytes == (n == 1 ? 0 : bytes));
    }
    // Of five replicas, 1 and 0 are paired: 1 sends a half, a quarter, both again, and the whole back.
    CHECK(sends(AllReduceOrder::halving_doubling, 5, fp32, 400).bytes == 1600 * (0.5 + 0.25 + 0.25 + 0.5 + 1));
    CHECK_THROWS_AS(Schedule(AllReduceOrder::ring, 0), std::invalid_argument);
}

TEST_CASE("what a row means can be read without the row above it") {
    const auto readable = [](const auto& rows) {
        for (const auto& row : rows) {
            CAPTURE(row.name);
            for (const char* word : {"the same", "and ", "that "}) CHECK(!row.meaning.starts_with(word));
            CHECK(!row.source.empty());
        }
    };
    readable(all_reduce_rows);
    readable(all_reduce_divisions);
    readable(shardings);
}

TEST_CASE("each replica's gradient counts once in each chunk") {
    for (const AllReduceOrder order : all_orders)
        for (int n = 1; n <= 40; ++n) {
            CAPTURE(row_of(order).name);
            CAPTURE(n);
            const Schedule schedule(order, n);
            const std::vector<ChunkSum> sums = sums_of(schedule);
            REQUIRE(std::ssize(sums) == schedule.chunks());
            for (const ChunkSum& sum : sums) {
                if (row_of(order).sum != ReduceSum::pairwise) {
                    CHECK(sum.additions.empty());
                    continue;
                }
                std::vector<int> parts(static_cast<std::size_t>(n), 1); // gradients in what each replica has
                for (const Addition& a : sum.additions) {
                    parts[static_cast<std::size_t>(a.to)] += parts[static_cast<std::size_t>(a.from)];
                    parts[static_cast<std::size_t>(a.from)] = -n * n; // read no more
                }
                CHECK(parts[static_cast<std::size_t>(sum.owner)] == n);
            }
        }
}
