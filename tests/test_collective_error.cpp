// What adding up gradients costs, against sums in exact rationals and errors in long double.
#include "oracle_collective.h"
#include "sweep.h"
#include "tool.h"

#include <ampscope/sim/findings/collective_error.h>
#include <ampscope/sim/io/write.h>

#include <doctest/doctest.h>

#include <random>

using namespace amp;
using namespace amp::test;

namespace {

using Gradients = std::vector<std::vector<float>>;

/// Writes a file of two tensors: a.grad has the first so many of the values, b.grad the others. They still contain the
/// loss scale.
void record_gradients(const fs::path& file, const std::vector<float>& values, std::size_t first = 13,
                      const char* scale = "1") {
    const auto tensor = [&](const char* name, std::size_t count) {
        return TensorEntry{.name = name, .dtype = DType::f32, .shape = {count}};
    };
    fs::create_directories(file.parent_path());
    TensorWriter writer = create_tensor_file(file, {tensor("a.grad", first), tensor("b.grad", values.size() - first)},
                                             {{"loss_scale", scale}});
    writer.append(std::as_bytes(std::span(values)));
    writer.commit();
}

void record_replicas(const fs::path& file, std::span<const std::vector<float>> replicas) {
    fs::create_directories(file.parent_path());
    std::vector<TensorEntry> entries;
    for (std::size_t r = 0; r < replicas.size(); ++r)
        entries.push_back(
            {.name = fmt::format("replica_{}.w.grad", r), .dtype = DType::f32, .shape = {replicas[r].size()}});
    TensorWriter writer = create_tensor_file(file, entries, {});
    for (const std::vector<float>& replica : replicas) writer.append(std::as_bytes(std::span(replica)));
    writer.commit();
}

/// A signal, and noise of each replica that is so many times as large.
Gradients gradients(std::size_t replicas, std::size_t elements, float noise) {
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    std::vector<float> signal(elements);
    for (float& x : signal) x = normal(random);
    Gradients all(replicas, signal);
    for (std::vector<float>& replica : all)
        for (float& x : replica) x += noise * normal(random);
    return all;
}

} // namespace

TEST_CASE("errors of the mean are those of sums in exact rationals") {
    const Gradients all = gradients(13, 29, 2);
    const AllReduceOptions ring{.transport = format("bf16")},
        exact{.order = AllReduceOrder::exact, .division = AllReduceDivision::after, .transport = format("fp16")};
    const CollectiveErrorFindings found = collective_errors(all, {{ring, exact}, 2});
    CHECK(found.replicas == std::vector{2, 3, 4, 6, 8, 12});
    CHECK(found.elements == 29);
    for (const CollectiveErrors& row : found.rows)
        for (std::size_t at = 0; at < found.replicas.size(); ++at) {
            const auto n = static_cast<std::size_t>(found.replicas[at]);
            CAPTURE(n);
            const Definition definition{row.way.order, {row.way.transport.name}};
            long double error = 0, norm = 0;
            std::size_t chunk = 0, end = 29 / n + (29 % n > 0 ? 1 : 0);
            for (std::size_t i = 0; i < 29; ++i) {
                while (i == end) ++chunk, end += 29 / n + (chunk < 29 % n ? 1 : 0);
                std::vector<float> sent;
                long double mean = 0;
                for (std::size_t r = 0; r < n; ++r) {
                    const bool before = row.way.division == AllReduceDivision::before;
                    sent.push_back(definition.math.quotient(all[r][i], before ? static_cast<float>(n) : 1));
                    mean += static_cast<long double>(all[r][i]) / static_cast<long double>(n);
                }
                float got = definition.sum(sent, chunk);
                if (row.way.division == AllReduceDivision::after)
                    got = definition.math.quotient(got, static_cast<float>(n));
                error += (got - mean) * (got - mean);
                norm += mean * mean;
            }
            CHECK(row.errors[at] == doctest::Approx(static_cast<double>(std::sqrt(error / norm))).epsilon(1e-9));
        }
}

TEST_CASE("the error of a ring grows as the square root of N, that of a tree or of one rounding does not") {
    for (const float noise : {1.0F, 3.0F, 30.0F}) {
        CAPTURE(noise);
        const CollectiveErrorFindings found = collective_errors(gradients(128, 3000, noise), {usual_all_reduces(), 0});
        for (const CollectiveErrors& row : found.rows) {
            CAPTURE(name_of(row.way));
            REQUIRE(row.exponent.has_value());
            const bool alone = row.way.blocks == nullptr && !row.way.scaled;
            if (alone && row.way.order == AllReduceOrder::ring) CHECK(std::abs(*row.exponent - 0.5) < 0.15);
            if (row.way.order == AllReduceOrder::exact || row.way.order == AllReduceOrder::all_to_all)
                CHECK(std::abs(*row.exponent) < 0.15);
            if (row.way.order == AllReduceOrder::tree) CHECK(std::abs(*row.exponent) < 0.25);
        }
    }
}

TEST_CASE("sums of more than 256 terms begin to stand still in BF16, those of a tree do not") {
    const AllReduceOptions ring{.transport = format("bf16")},
        tree{.order = AllReduceOrder::tree, .transport = format("bf16")};
    const CollectiveErrorFindings found = collective_errors(gradients(1024, 40, 0.5F), {{ring, tree}, 0});
    CHECK(found.replicas.back() == 1024);
    CHECK(std::abs(found.rows[0].exponent.value_or(0) - 0.5) < 0.2);
    CHECK(found.rows[0].beyond.value_or(0) > 0.8);
    CHECK(std::abs(found.rows[1].beyond.value_or(1)) < 0.3);
    CHECK(!collective_errors(gradients(8, 40, 1), {{ring}, 0}).rows[0].beyond);
}

TEST_CASE("the noise of the mean is its standard error, and the verdict says what is lost beside it") {
    const Gradients two = {{1, 4}, {3, 0}};
    const CollectiveErrorFindings known = collective_errors(two, {{{}}, 1});
    CHECK(known.noise == std::vector{std::sqrt((2.0 + 8.0) / 2 / (2 * 2 + 2 * 2))}); // variances 2 and 8, mean (2, 2)
    // Around a signal with elements of 1: each replica differs by 0.001, their mean by 0.001 / sqrt(N).
    const Gradients all = gradients(64, 400, 0.001F);
    const CollectiveErrorFindings found = collective_errors(all, {usual_all_reduces(), 0});
    for (std::size_t i = 0; i < found.replicas.size(); ++i)
        CHECK(found.noise[i] == doctest::Approx(0.001 / std::sqrt(found.replicas[i])).epsilon(0.1));
    REQUIRE(found.verdict.size() == 5); // and bf16, fp16, fp32, messages with scales
    CHECK(found.verdict[0].starts_with("Noise: the mean of 64 gradients differs by 0.01"));
    CHECK(found.verdict[1].starts_with("bf16: ring is off by "));
    CHECK(contains(found.verdict[1], ", above the noise from N = 2 on; "));
    CHECK_MESSAGE(found.verdict[3].starts_with("fp32: ring and tree are off by at most "), found.verdict[3]);
    const CollectiveErrorFindings noisy = collective_errors(gradients(64, 400, 30), {usual_all_reduces(), 0});
    CHECK_MESSAGE(noisy.verdict[1].starts_with("bf16: ring and ring nccl-avg and tree and "), noisy.verdict[1]);
}

TEST_CASE("of a run that recorded replicas, these are the replicas") {
    const Scratch scratch;
    const Gradients all = gradients(12, 40, 1);
    fs::create_directories(scratch / "run" / "gradients"); // of the mean, which nobody asks for
    write_file(scratch / "run" / "run.json", R"({"optimizer": {"lr": 0}})");
    record_replicas(scratch / "run" / "replicas" / "step_0.safetensors", std::span(all).first(11));
    record_replicas(scratch / "run" / "replicas" / "step_1.safetensors", std::span(all).last(1));
    const CollectiveErrorOptions options{usual_all_reduces(), 1};
    const CollectiveErrorFindings found = recorded_collective_errors({scratch / "run"}, options),
                                  want = collective_errors(all, options);
    CHECK(found.steps == 2);
    CHECK(found.gradients == 12);
    CHECK(found.tensors == 1);
    CHECK(found.warnings.empty());
    for (std::size_t row = 0; row < want.rows.size(); ++row) CHECK(found.rows[row].errors == want.rows[row].errors);
    fs::remove(scratch / "run" / "replicas" / "step_1.safetensors");
    CHECK(recorded_collective_errors({scratch / "run"}, options).warnings.empty());
}

TEST_CASE("each recorded step is a replica") {
    const Scratch scratch;
    const Gradients all = gradients(6, 40, 1);
    for (std::size_t i = 0; i < all.size(); ++i) {
        std::vector<float> scaled = all[i];
        for (float& x : scaled) x *= 1024;
        record_gradients(scratch / "all" / fmt::format("step_{}.safetensors", i), scaled, 13, "1024");
    }
    const CollectiveErrorOptions options{usual_all_reduces(), 1};
    const CollectiveErrorFindings found = recorded_collective_errors({scratch / "all"}, options),
                                  want = collective_errors(all, options);
    CHECK(found.steps == 6);
    CHECK(found.tensors == 2);
    for (std::size_t row = 0; row < want.rows.size(); ++row) CHECK(found.rows[row].errors == want.rows[row].errors);
    record_gradients(scratch / "all" / "step_9.safetensors", all[0], 14);
    const std::string folder = (scratch / "all").string(),
                      other =
                          fmt::format("step 9 of {} does not have the tensors of step 0 of {}: a.grad", folder, folder);
    CHECK_THROWS_WITH_AS(recorded_collective_errors({scratch / "all"}, options), other.c_str(), std::invalid_argument);
    CHECK_THROWS_WITH_AS(recorded_collective_errors({scratch / "all" / "step_0.safetensors"}, options),
                         doctest::Contains("two steps"), std::invalid_argument);
    CHECK_THROWS_AS(recorded_collective_errors({scratch / "none"}, options), RecordingError);
    CHECK_THROWS_WITH_AS(collective_errors({{1, -1}, {-1, 1}}, options),
                         "the mean of 2 gradients is zero, beside which no error can be told", std::invalid_argument);
    const fs::path broken = scratch / "broken" / "step_0.safetensors";
    record_gradients(broken, {1, 2, 3, std::numeric_limits<float>::infinity()}, 2);
    record_gradients(scratch / "broken" / "step_1.safetensors", {1, 2, 3, 4}, 2);
    const std::string infinite = broken.string() + ": b.grad is not finite everywhere, and so no mean is";
    CHECK_THROWS_WITH_AS(recorded_collective_errors({scratch / "broken"}, options), infinite.c_str(),
                         std::invalid_argument);
}

TEST_CASE("each step of each run is a replica, wherever the runs lie") {
    const Scratch scratch;
    const fs::path folders[] = {scratch / "with_run" / "a", scratch / "with_run" / "b", scratch / "plain" / "a",
                                scratch / "plain" / "b"};
    Gradients all = gradients(6, 40, 1);
    for (std::vector<float>& replica : all) std::fill_n(replica.begin(), 13, 0.0F); // a.grad is equal in all of them
    for (std::size_t i = 0; i < all.size(); ++i) {
        const std::string file = fmt::format("step_{}.safetensors", i % 3);
        record_gradients(folders[i / 3] / "gradients" / file, all[i]);
        record_gradients(folders[2 + i / 3] / file, all[i]);
    }
    for (const fs::path& run : {folders[0], folders[1]}) write_file(run / "run.json", R"({"optimizer": {"lr": 0}})");
    const CollectiveErrorOptions options{usual_all_reduces(), 1};
    const CollectiveErrorFindings want = collective_errors(all, options);
    using Paths = std::vector<fs::path>;
    for (const Paths& paths :
         {Paths{folders[0], folders[1]}, Paths{folders[1], folders[0]}, Paths{scratch / "with_run"},
          Paths{folders[2], folders[3]}, Paths{folders[2], folders[2], folders[3]}}) {
        CAPTURE(paths[0].string());
        const CollectiveErrorFindings found = recorded_collective_errors(paths, options);
        CHECK(found.steps == 6);
        CHECK(found.warnings.size() == (fs::exists(paths[0] / "run.json") || paths.size() == 1 ? 0 : 2));
        for (std::size_t row = 0; row < want.rows.size(); ++row) CHECK(found.rows[row].errors == want.rows[row].errors);
    }
    // Without run.json nothing tells the replicas in one folder apart.
    CHECK_THROWS_WITH_AS(recorded_collective_errors({scratch / "plain"}, options),
                         doctest::Contains("name the folder of each replica"), std::invalid_argument);
    fs::copy(folders[0], scratch / "copy", fs::copy_options::recursive);
    CHECK_THROWS_WITH_AS(recorded_collective_errors({folders[0], scratch / "copy"}, options),
                         doctest::Contains("a copy would count as one more replica"), std::invalid_argument);
}

TEST_CASE("a run whose weights move is named") {
    const Scratch scratch;
    const Gradients all = gradients(4, 40, 1);
    for (std::size_t i = 0; i < all.size(); ++i)
        record_gradients(scratch / "run" / "gradients" / fmt::format("step_{}.safetensors", i), all[i]);
    const CollectiveErrorOptions options{{AllReduceOptions{}}, 1};
    const auto warnings = [&](const char* configuration) {
        write_file(scratch / "run" / "run.json", configuration);
        return recorded_collective_errors({scratch / "run"}, options).warnings;
    };
    CHECK(warnings(R"({"optimizer": {"lr": 0}})").empty());
    REQUIRE(warnings("{}").size() == 1);
    CHECK(contains(warnings("{}")[0], "no run.json tells its learning rate: its steps may differ in their weights"));
    const std::vector<std::string> moving = warnings(R"({"optimizer": {"lr": 0.001}})");
    REQUIRE(moving.size() == 1);
    CHECK(moving[0].starts_with((scratch / "run").string() + ": its learning rate is 0.001"));
}

TEST_CASE("runs that differ in their weights are no replicas of each other") {
    const Scratch scratch;
    const Gradients all = gradients(2, 40, 1);
    const CollectiveErrorOptions options{{AllReduceOptions{}}, 1};
    const auto record = [&](const char* run, const char* configuration, const std::vector<float>& replica) {
        record_gradients(scratch / run / "gradients" / "step_0.safetensors", replica);
        write_file(scratch / run / "run.json", configuration);
    };
    const auto warnings = [&](const char* first, const char* second) {
        record("a", first, all[0]);
        record("b", second, all[1]);
        return recorded_collective_errors({scratch / "a", scratch / "b"}, options).warnings;
    };
    const char *still = R"({"seed": 1, "optimizer": {"lr": 0}})", *moving = R"({"seed": 1, "optimizer": {"lr": 1}})";
    CHECK(warnings(still, still).empty());
    const std::vector<std::string> seeds = warnings(still, R"({"seed": 2, "optimizer": {"lr": 0}})"),
                                   rates = warnings(still, moving);
    REQUIRE(seeds.size() == 1);
    CHECK(seeds[0].starts_with((scratch / "a").string() + " and 1 more run: they differ in their seeds, and so in"));
    REQUIRE(rates.size() == 1);
    CHECK(contains(rates[0], "they differ in their steps at a learning rate above 0"));
}

TEST_CASE("of a run whose weights move, one step's replicas are measured: the last of those with most") {
    const Scratch scratch;
    const Gradients all = gradients(10, 40, 1);
    std::size_t step = 0, first = 0;
    for (const std::size_t replicas : {3UL, 3UL, 3UL, 1UL})
        record_replicas(scratch / "run" / "replicas" / fmt::format("step_{}.safetensors", step++),
                        std::span(all).subspan(std::exchange(first, first + replicas), replicas));
    const CollectiveErrorOptions options{{AllReduceOptions{}}, 1};
    const auto found = [&](const char* rate) {
        write_file(scratch / "run" / "run.json", fmt::format(R"({{"optimizer": {{"lr": {}}}}})", rate));
        return recorded_collective_errors({scratch / "run"}, options);
    };
    const CollectiveErrorFindings moving = found("0.001"), still = found("0");
    CHECK(moving.steps == 1);
    CHECK(moving.rows[0].errors == collective_errors({all.begin() + 6, all.begin() + 9}, options).rows[0].errors);
    REQUIRE(moving.warnings.size() == 1);
    CHECK(moving.warnings[0].ends_with("as replicas do; the replicas of step 2 are measured"));
    CHECK(still.steps == 4);
    CHECK(still.rows[0].errors == collective_errors(all, options).rows[0].errors);
    CHECK(still.warnings.empty());
    fs::remove(scratch / "run" / "run.json"); // as replicas alone are copied
    const CollectiveErrorFindings unknown = recorded_collective_errors({scratch / "run" / "replicas"}, options);
    CHECK(unknown.rows[0].errors == moving.rows[0].errors);
    CHECK(contains(unknown.warnings.at(0), "no run.json tells its learning rate"));
}
