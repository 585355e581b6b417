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

TEST_CASE("each recorded step is a replica") {
    const Scratch scratch;
    fs::create_directory(scratch / "all");
    const Gradients all = gradients(6, 40, 1);
    const auto record = [&](const char* file, const std::vector<float>& values, std::size_t first, const char* scale) {
        const auto half = [&](const char* name, std::size_t count) {
            return TensorEntry{.name = name, .dtype = DType::f32, .shape = {count}};
        };
        TensorWriter writer = create_tensor_file(
            scratch / "all" / file, {half("a.grad", first), half("b.grad", 40 - first)}, {{"loss_scale", scale}});
        writer.append(std::as_bytes(std::span(values)));
        writer.commit();
    };
    for (std::size_t i = 0; i < all.size(); ++i) {
        std::vector<float> scaled = all[i];
        for (float& x : scaled) x *= 1024;
        record(fmt::format("step_{}.safetensors", i).c_str(), scaled, 13, "1024");
    }
    const CollectiveErrorOptions options{usual_all_reduces(), 1};
    const CollectiveErrorFindings found = recorded_collective_errors({scratch / "all"}, options),
                                  want = collective_errors(all, options);
    CHECK(found.steps == 6);
    CHECK(found.tensors == 2);
    for (std::size_t row = 0; row < want.rows.size(); ++row) CHECK(found.rows[row].errors == want.rows[row].errors);
    record("step_9.safetensors", all[0], 14, "1");
    CHECK_THROWS_WITH_AS(recorded_collective_errors({scratch / "all"}, options),
                         "step 9 does not have the tensors of step 0: a.grad", std::invalid_argument);
    CHECK_THROWS_WITH_AS(recorded_collective_errors({scratch / "all" / "step_0.safetensors"}, options),
                         doctest::Contains("at least two steps"), std::invalid_argument);
    CHECK_THROWS_AS(recorded_collective_errors({scratch / "none"}, options), RecordingError);
}
