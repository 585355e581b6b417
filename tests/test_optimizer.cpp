// Optimizers against torch.optim and others over 1,000 steps, bit for bit, and what low-precision state does to Adam.
#include "recorded_steps.h"
#include "sweep.h"

#include <ampscope/formats/codec.h>
#include <ampscope/sim/backend/cpu/cpu.h>
#include <ampscope/sim/backend/update.h>
#include <ampscope/sim/program/muon.h>
#include <ampscope/sim/program/precision.h>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <fmt/format.h>
#include <fstream>
#include <set>

using namespace amp;
using namespace amp::test;

namespace {

/// A parameter with its optimizer state.
struct Subject {
    FormatSpec weight_format, m_format, v_format;
    std::vector<float> weight, m, v, compensation;
    UpdateRounding rounding = UpdateRounding::nearest;
    std::uint8_t random_bits = 32;

    Subject(std::vector<float> w, std::string_view format_name)
        : weight_format(format(format_name)), m_format(weight_format), v_format(weight_format), weight(std::move(w)),
          m(weight.size()), v(weight.size()), compensation(weight.size()) {}
    UpdateCounts step(const OptimizerOptions& o, std::int64_t t, const std::vector<float>& gradient) {
        const ScaledState plain;
        return update(
            o, {.t = t, .learning_rate = o.learning_rate, .key = {.seed = 1, .step = static_cast<std::uint32_t>(t)}},
            {weight_format, m_format, v_format, weight, gradient, m, v, compensation, plain, rounding, random_bits});
    }
};

/// The row of our table that a recorded one is about: that of its name, or of its kind in torch.optim.
std::string optimizer_of(const nlohmann::json& row) {
    if (row.contains("optimizer")) return row["optimizer"];
    const bool first = row["torch"].get<std::string>().starts_with("1.");
    const std::string kind = row["kind"];
    return row.value("fused", false) ? kind + "-fused-cpu" : first && kind != "sgd" ? kind + "-1" : kind;
}

OptimizerOptions options_of(const nlohmann::json& row) {
    OptimizerOptions o = optimizer(optimizer_of(row)).options;
    const bool first = row["torch"].get<std::string>().starts_with("1.");
    if (first) o.order = OptimizerOrder::torch_1; // SGD's, too
    o.learning_rate = row["lr"];
    o.weight_decay = row.value("weight_decay", 0.0);
    o.eps = row.value("eps", 1e-8);
    o.momentum = row.value("momentum", 0.0);
    o.dampening = row.value("dampening", 0.0);
    o.nesterov = row.value("nesterov", false);
    if (row.contains("betas")) o.beta1 = row["betas"][0], o.beta2 = row["betas"][1];
    // PyTorch 1.13 has no vector loops for FP16.
    o.contract = row["capability"] == "avx2" && !(first && row["dtype"] == "fp16");
    return o;
}

/// The recorded hashes that do not match; empty if all do.
std::string mismatches(const nlohmann::json& row, const OptimizerOptions& o) {
    constexpr std::size_t count = 256;
    const FormatSpec f = format(row["dtype"].get<std::string>());
    Stream stream(count);
    Subject s(stream.next(3, f), row["dtype"].get<std::string>());
    s.rounding = parse_name<UpdateRounding>("rounding", update_rounding_names, row.value("rounding", "nearest"));
    s.random_bits = 16; // torchao's number
    std::string wrong;
    for (std::int64_t t = 1; t <= 1000; ++t) {
        s.step(o, t, stream.next(12, f));
        const std::string name = std::to_string(t);
        if (!row["hashes"].contains(name)) continue;
        std::uint64_t h = 0xCBF29CE484222325;
        hash_into(h, s.weight);
        if (o.has_m()) hash_into(h, s.m);
        if (o.has_v()) hash_into(h, s.v);
        if (s.rounding == UpdateRounding::kahan) hash_into(h, s.compensation);
        if (row["hashes"][name] != fmt::format("{:016x}", h)) wrong += " " + name;
    }
    return wrong;
}

} // namespace

TEST_CASE("1,000 steps of torch.optim and of other packages, bit for bit") {
    std::size_t rows = 0, compared = 0;
    for (const char* name : {"optimizer", "optimizer_packages"}) {
        std::ifstream file(fmt::format("{}/torch/{}.jsonl", AMPSCOPE_TEST_DATA, name));
        for (std::string line; std::getline(file, line);) {
            if (!is_due(rows++)) continue;
            ++compared;
            const auto row = nlohmann::json::parse(line);
            const std::string wrong = mismatches(row, options_of(row));
            CHECK_MESSAGE(wrong.empty(), row.dump().substr(0, 200), wrong);
        }
        CHECK(rows > (name == std::string_view("optimizer") ? 60 : 120));
    }
    fmt::print("proof: optimizers over 1,000 steps: {} recorded runs, 0 mismatches\n", compared);
}

namespace {

/// A matrix that Muon updates, in a program that consists of its update.
class Matrix {
  public:
    Matrix(const Shape& shape, const FormatSpec& f, const OptimizerOptions& o)
        : weight(tensor("w", shape, f)), gradient(tensor("g", shape, f)), m(tensor("m", shape, f)) {
        append_muon(program_,
                    {.options = o, .weight = weight, .gradient = gradient, .m = {}, .v = {}, .compensation = {}}, m,
                    {});
        cpu_ = std::make_unique<Cpu>(program_, 1);
    }
    [[nodiscard]] std::span<float> operator[](TensorId id) { return (*cpu_)[id]; }
    void step(const std::vector<float>& values) {
        std::ranges::copy(values, (*this)[gradient].begin());
        replay(*cpu_, program_.update);
    }

  private:
    TensorId tensor(const char* name, const Shape& shape, const FormatSpec& f) {
        program_.tensors.push_back({.name = name, .shape = shape, .format = f});
        return {static_cast<std::int32_t>(program_.tensors.size() - 1)};
    }
    Program program_;
    std::unique_ptr<Cpu> cpu_;

  public:
    TensorId weight, gradient, m;
};

OptimizerOptions muon_of(const nlohmann::json& row) {
    OptimizerOptions o = optimizer(row["optimizer"].get<std::string>()).options;
    o.learning_rate = row["lr"];
    o.weight_decay = row.value("weight_decay", o.weight_decay);
    o.momentum = row.value("momentum", o.momentum);
    o.contract = row["capability"] == "avx2";
    return o;
}

} // namespace

TEST_CASE("1,000 steps of torch.optim.Muon: bit for bit where its products are ours, near them where they are not") {
    std::ifstream file(AMPSCOPE_TEST_DATA "/torch/muon.jsonl");
    std::size_t rows = 0, compared = 0;
    double largest = 0, jordans = 0;
    for (std::string line; std::getline(file, line);) {
        if (!is_due(3 + rows++)) continue; // BF16 is among these
        ++compared;
        const auto row = nlohmann::json::parse(line);
        const FormatSpec f = format(row["dtype"].get<std::string>());
        const Shape shape{row["rows"], row["columns"]};
        Stream stream(static_cast<std::size_t>(element_count(shape)));
        Matrix matrix(shape, f, muon_of(row));
        const std::vector<float> first = stream.next(3, f);
        std::ranges::copy(first, matrix[matrix.weight].begin());
        for (int t = 1; t <= 1000; ++t) {
            matrix.step(stream.next(12, f));
            if (t == 10) { // how far PyTorch's products lead, against how far the steps lead
                double apart = 0, moved = 0;
                const std::span<const float> weights = matrix[matrix.weight];
                const std::vector<double> stock = row["stock"];
                for (std::size_t i = 0; i < stock.size(); ++i) {
                    apart += (weights[i] - stock[i]) * (weights[i] - stock[i]);
                    moved += (weights[i] - first[i]) * (weights[i] - first[i]);
                }
                double& of = row["optimizer"] == "muon-jordan" ? jordans : largest;
                of = std::max(of, std::sqrt(apart / moved));
            }
            if (!row["hashes"].contains(std::to_string(t))) continue;
            std::uint64_t h = 0xCBF29CE484222325;
            hash_into(h, matrix[matrix.weight]);
            hash_into(h, matrix[matrix.m]);
            CHECK_MESSAGE(row["hashes"][std::to_string(t)] == fmt::format("{:016x}", h), row.dump().substr(0, 150), t);
        }
    }
    CHECK(rows == 24);
    CHECK(largest < 0.005);
    CHECK(jordans < 1e-6);
    fmt::print(
        "proof: Muon over 1,000 steps: {} recorded runs, 0 mismatches; PyTorch's own products lead {:.2g} of the "
        "way elsewhere, {:.2g} in Keller Jordan's order\n",
        compared, largest, jordans);
}

TEST_CASE("a step whose moments are there changes the weights as the whole step does") {
    std::uint64_t cases = 0;
    for (const OptimizerRow& row : optimizers()) {
        if (!row.options.has_v()) continue;
        for (const double decay : {0.0, 0.1}) {
            OptimizerOptions o = row.options;
            o.weight_decay = decay;
            Stream stream(1000);
            std::vector<float> weight = stream.next(8, format("fp32")), m(1000), v(1000);
            for (std::int64_t t = 1; t <= 20; ++t) {
                const std::vector<float> gradient = stream.next(40, format("fp32")), zeros(1000);
                std::vector<float> other = weight;
                const auto step = [&](std::vector<float>& w, const std::vector<float>& g, bool has_moments) {
                    update(o, {.t = t, .learning_rate = o.learning_rate, .has_moments = has_moments},
                           {.weight_format = format("fp32"),
                            .m_format = format("fp32"),
                            .v_format = format("fp32"),
                            .weight = w,
                            .gradient = g,
                            .m = m,
                            .v = v,
                            .compensation = {}});
                };
                step(weight, gradient, false);
                const std::vector<float> kept_m = m, kept_v = v;
                step(other, zeros, true);
                REQUIRE(m == kept_m);
                REQUIRE(v == kept_v);
                REQUIRE(std::ranges::equal(other, weight, [](float a, float b) {
                    return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
                }));
                cases += weight.size();
            }
        }
    }
    CHECK(cases > 0);
    fmt::print("proof: steps of Adam from their moments: {} cases, 0 mismatches\n", cases);
}

namespace {

OptimizerOptions adam(double learning_rate, double eps = 1e-8) {
    return {.kind = OptimizerKind::adam, .learning_rate = learning_rate, .eps = eps};
}

/// Makes steps first ... last of one element, all with the same gradient.
void train(Subject& s, const OptimizerOptions& o, std::int64_t first, std::int64_t last, float gradient) {
    const std::vector<float> g(s.weight.size(), quantize(s.weight_format, gradient));
    for (std::int64_t t = first; t <= last; ++t) s.step(o, t, g);
}

} // namespace

TEST_CASE("the second moment of Adam rises in BF16 and never falls") {
    struct Row {
        const char* format;
        double high, low;
    };
    for (const Row& row :
         {Row{"fp32", 9.50e-5, 4.73e-6}, Row{"bf16", 3.05e-5, 3.05e-5}, Row{"fp16", 8.94e-5, 2.98e-5}}) {
        Subject s({1.0F}, row.format);
        train(s, adam(0), 1, 3000, 1e-2F);
        CHECK(s.v[0] == doctest::Approx(row.high).epsilon(2e-3));
        train(s, adam(0), 3001, 6000, 1e-4F);
        CHECK(s.v[0] == doctest::Approx(row.low).epsilon(2e-3));
    }
    // No value of the binade can decay by 0.999.
    for (std::uint32_t code = 0x3f80; code < 0x4000; ++code) {
        Subject s({1.0F}, "bf16");
        s.v[0] = decode(s.v_format, code);
        const float before = s.v[0];
        train(s, adam(0), 2, 2, 0);
        CHECK(s.v[0] == before);
    }
}

TEST_CASE("eps 1e-8 is zero in FP16: a zero gradient makes 0 / 0") {
    Subject half({1.0F, 1.0F}, "fp16"), single({1.0F, 1.0F}, "fp32");
    const UpdateCounts counts = half.step(adam(1e-3), 1, {0.0F, 1e-4F});
    CHECK(std::isnan(half.weight[0]));
    CHECK(std::isinf(half.weight[1])); // its square is zero, its first moment is not
    CHECK(counts.nonfinite == 2);
    single.step(adam(1e-3), 1, {0.0F, 1e-4F});
    CHECK(single.weight[0] == 1);
    Subject larger({1.0F}, "fp16");
    larger.step(adam(1e-3, 1e-4), 1, {0.0F});
    CHECK(larger.weight[0] == 1);
}

TEST_CASE("an update below half a last place is lost, unless Kahan keeps it") {
    const OptimizerOptions sgd{.kind = OptimizerKind::sgd, .learning_rate = 1};
    Subject w({1.0F}, "bf16");
    CHECK(w.step(sgd, 1, {quantize(w.weight_format, 1e-3F)}).lost == 1);
    CHECK(w.weight[0] == 1);
    CHECK(w.step(sgd, 2, {quantize(w.weight_format, 2e-3F)}).changed == 1);
    CHECK(w.weight[0] == 0.99609375F);

    Subject k({1.0F}, "bf16");
    k.rounding = UpdateRounding::kahan;
    train(k, sgd, 1, 100, 1e-3F);
    CHECK(k.weight[0] + k.compensation[0] ==
          doctest::Approx(1 - 100 * static_cast<double>(quantize(k.weight_format, 1e-3F))).epsilon(1e-3));
    Subject counted({1.0F}, "bf16");
    counted.rounding = UpdateRounding::kahan;
    CHECK(counted.step(sgd, 1, {quantize(k.weight_format, 1e-3F)}).lost == 0);

    Subject many(std::vector<float>(20000, 1.0F), "bf16");
    const std::vector<float> gradient(20000, quantize(many.weight_format, 1e-3F));
    many.rounding = UpdateRounding::stochastic;
    many.step(sgd, 1, gradient);
    double mean = 0;
    for (const float x : many.weight) mean += x / 20000.0;
    CHECK(mean == doctest::Approx(1 - static_cast<double>(gradient[0])).epsilon(3e-5)); // five deviations
}

TEST_CASE("stochastic updates take as many random bits as they are told") {
    // 1 - 2^-13 lies 1/32 of the way from 1 to BF16's next number below. Fewer than five bits cut that to nothing.
    const OptimizerOptions sgd{.kind = OptimizerKind::sgd, .learning_rate = 1};
    constexpr std::size_t count = 1 << 16;
    for (int bits = 1; bits <= 32; ++bits) {
        CAPTURE(bits);
        Subject s(std::vector<float>(count, 1.0F), "bf16");
        s.rounding = UpdateRounding::stochastic;
        s.random_bits = static_cast<std::uint8_t>(bits);
        const auto changed = s.step(sgd, 1, std::vector<float>(count, 0x1p-13F)).changed;
        std::int64_t expected = 0; // the magnitude is rounded up, to 1, where the word is below 31/32 of all
        const std::uint64_t below = (std::uint64_t{31} << bits) >> 5;
        for (std::size_t i = 0; i < count; ++i)
            expected += RandomKey{.seed = 1, .step = 1}.word(i, bits) >= below ? 1 : 0;
        CHECK(changed == expected);
    }
    for (const char* text : {"pure-bf16-stochastic,update-random-bits=0", "pure-bf16-stochastic,update-random-bits=33",
                             "pure-bf16-stochastic,update-random-bits=x", "pure-bf16,update-random-bits=16"})
        CHECK_THROWS_AS(precision(text), std::invalid_argument);
    CHECK(precision("pure-bf16-stochastic").update_random_bits == 32);
    CHECK(precision("update-random-bits=16,update=stochastic").update_random_bits == 16);
}

TEST_CASE("fused kernels round once") {
    // One step from zero state: m = (1 - b1) g and v = (1 - b2) g^2 in FP64, each rounded once.
    for (const char* name : {"adam-fused", "apex-adam"}) {
        OptimizerOptions o = optimizer(name).options;
        Subject s({0.5F}, "fp32");
        const float g = 0.37F;
        s.step(o, 1, {g});
        const bool wide = o.order == OptimizerOrder::torch_fused;
        const float m = wide ? static_cast<float>((1 - 0.9) * g) : (1 - 0.9F) * g;
        const float v = wide ? static_cast<float>((1 - 0.999) * g * g) : (1 - 0.999F) * g * g;
        CHECK(s.m[0] == m);
        CHECK(s.v[0] == v);
        CHECK(s.weight[0] == doctest::Approx(0.499).epsilon(1e-7));
    }
    // Decoupled decay: torch subtracts it from the weight first, Apex adds it to the direction.
    Subject torch({1.0F}, "fp32"), apex({1.0F}, "fp32");
    OptimizerOptions o = optimizer("adamw-fused").options, p = optimizer("apex-adamw").options;
    o.weight_decay = p.weight_decay = 0.1;
    o.learning_rate = p.learning_rate = 1e-3;
    torch.step(o, 1, {0.0F});
    apex.step(p, 1, {0.0F});
    CHECK(torch.weight[0] == static_cast<float>(1 - 1e-3 * 0.1));
    CHECK(apex.weight[0] == 1 - 1e-3F * 0.1F);
}

TEST_CASE("state formats are apart: only v in BF16") {
    Subject s({1.0F}, "fp32");
    s.v_format = format("bf16");
    train(s, adam(1e-3), 1, 50, 0.3F);
    CHECK(quantize(s.v_format, s.v[0]) == s.v[0]);
    CHECK(quantize(s.v_format, s.m[0]) != s.m[0]);
}

TEST_CASE("names and ranges") {
    CHECK(optimizer_kind_names == std::array<std::string_view, 6>{"sgd", "adam", "adamw", "lion", "muon", "adafactor"});
    CHECK(optimizer_order_names ==
          std::array<std::string_view, 11>{"torch", "torch-1", "torch-fused", "torch-fused-cpu", "apex", "ms-amp",
                                           "torchao", "bitsandbytes", "optimi", "lion-pytorch", "keller-jordan"});
    CHECK(optimizer("adamw").options.weight_decay == 0.01);
    CHECK_THROWS_WITH_AS(optimizer("adagrad"), doctest::Contains("adamw"), std::invalid_argument);
    std::set<std::string_view> names;
    for (const OptimizerRow& row : optimizers()) {
        check(row.options);
        CHECK(names.insert(row.name).second);
    }
    CHECK_THROWS_AS(check({.beta1 = 1}), std::invalid_argument);
    CHECK_THROWS_AS(check({.eps = -1}), std::invalid_argument);
    CHECK_THROWS_AS(check({.kind = OptimizerKind::sgd, .nesterov = true}), std::invalid_argument);
    CHECK_THROWS_AS(check({.learning_rate = std::nan("")}), std::invalid_argument);
}
