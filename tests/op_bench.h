// What proofs of single ops need: a program of one op with random operands, and its results compared with numbers of 60
// digits, rounded by the oracle. The proofs are overloads of prove_op, one for each op: op_proofs_attention.h,
// op_proofs_batch.h, op_proofs_layers.h, op_proofs_layout.h, op_proofs_products.h, op_proofs_step.h and
// op_proofs_update.h.
#pragma once

#include "reference_ops.h"
#include "sweep.h"

#include <ampscope/formats/codec.h>
#include <ampscope/sim/backend/cpu/cpu.h>
#include <ampscope/sim/base/noise.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace amp::test {

using reference::Index;
using reference::Real;
using reference::Reals;
using reference::rounded;

/// The formats in which every op's results are proved.
inline constexpr const char* proved_formats[] = {"fp32", "tf32", "fp16", "bf16", "e4m3", "e5m2"};

/// The parameter of an op's proof.
template <class Op>
using Of = std::type_identity<Op>;

/// A program of one op, with operands of random values of their formats.
class Bench {
  public:
    /// From here on the random values are those of the beginning: the proof of an op does not depend on those before.
    static void start_anew() { seed_ = 1; }
    TensorId tensor(Shape shape, const char* name) {
        program_.tensors.push_back({.name = "", .shape = std::move(shape), .format = format(name)});
        return {static_cast<std::int32_t>(program_.tensors.size() - 1)};
    }
    /// The elements of `of` under another shape.
    TensorId view(Shape shape, TensorId of) {
        program_.tensors.push_back(
            {.name = "", .shape = std::move(shape), .format = program_[of].format, .storage = of});
        return {static_cast<std::int32_t>(program_.tensors.size() - 1)};
    }
    /// Fills these tensors with random numbers, then runs the op.
    template <class Op>
    void run(const Op& op, std::initializer_list<TensorId> operands) {
        start(operands);
        cpu_->run(op);
    }
    void start(std::initializer_list<TensorId> operands) {
        cpu_ = std::make_unique<Cpu>(program_, 1);
        for (const TensorId id : operands) fill(id, 1);
    }
    /// Fills a tensor with new normally distributed numbers of that standard deviation.
    void fill(TensorId id, double deviation) {
        const std::span<float> x = (*cpu_)[id];
        for (std::size_t i = 0; i < x.size(); ++i)
            x[i] = quantize(program_[id].format, deviation * normal(seed_, 0, i));
        ++seed_;
    }
    /// Writes these numbers, which must be values of the tensor's format.
    void write(TensorId id, std::initializer_list<float> values) {
        REQUIRE(values.size() == (*cpu_)[id].size());
        std::ranges::copy(values, (*cpu_)[id].begin());
    }
    [[nodiscard]] Cpu& cpu() { return *cpu_; }
    [[nodiscard]] Reals values(TensorId id) const {
        Reals out;
        for (const float x : std::as_const(*cpu_)[id]) out.emplace_back(x);
        return out;
    }
    void expect(Tally& tally, TensorId out, const Reals& want, const std::string& what) const {
        const std::string_view name = program_[out].format.name;
        std::vector<float> stored;
        for (const Real& x : want) stored.push_back(rounded(name, x));
        expect_bits(tally, out, stored, what);
    }
    /// The same where results are given, and not rounded any more. A zero may have either sign.
    void expect_bits(Tally& tally, TensorId out, const std::vector<float>& want, const std::string& what) const {
        const std::span<const float> x = std::as_const(*cpu_)[out];
        REQUIRE(want.size() == x.size());
        for (std::size_t i = 0; i < want.size(); ++i)
            tally.expect(want[i] == 0 && x[i] == 0 ? want[i] : x[i], want[i],
                         [&] { return fmt::format("{} in {}, element {}", what, program_[out].format.name, i); });
    }

  private:
    Program program_;
    std::unique_ptr<Cpu> cpu_;
    static inline std::uint64_t seed_ = 1;
};

/// Proves an op on 2,000 elements in each format, under sanitizers on fewer: result = f(operands), element by element.
template <class Make, class F>
void prove_map(Tally& tally, const char* what, int operands, const Make& make, const F& f) {
    for (const char* result : proved_formats) {
        Bench b;
        std::vector<TensorId> in;
        constexpr std::int64_t elements = under_sanitizers ? 200 : 2000;
        for (int i = 0; i < operands; ++i) in.push_back(b.tensor({elements}, "fp16"));
        const TensorId out = b.tensor({elements}, result);
        if (operands == 1) b.run(make(in, out), {in[0]});
        else b.run(make(in, out), {in[0], in[1]});
        Reals want;
        const Reals x = b.values(in[0]), y = b.values(in.back());
        for (std::size_t i = 0; i < x.size(); ++i) want.push_back(f(x[i], y[i]));
        b.expect(tally, out, want, what);
    }
}

} // namespace amp::test
