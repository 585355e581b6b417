#include <ampscope/formats/codec.h>
#include <ampscope/formats/random.h>
#include <ampscope/tools/amp-crosscheck/op_case_builder.h>

#include <fmt/ranges.h>

namespace amp::crosscheck_tool {

namespace {

/// What is chosen for a case. Choices do not depend on each other.
enum class Choice : std::uint8_t {
    hides,
    mask,
    row_tile,
    key_tile,
    scores,
    p,
    sums,
    o,
    shift,
    rounds,
    steps,
    ds,
    grads
};

/// One of n numbers from 0 on.
std::uint32_t chosen(std::size_t number, Choice which, std::uint32_t n) {
    const RandomKey key{.seed = 1, .stream = static_cast<std::uint32_t>(number)};
    return key.words(static_cast<std::uint64_t>(which))[0] % n;
}

/// Formats and sizes of tiles, each of them now and then.
op::FusedAttention attention_of(std::size_t number, std::string_view f) {
    const auto every = [&](Choice which, std::uint32_t n) { return chosen(number, which, n) == 0; };
    const bool in_e4m3 = every(Choice::p, 5);
    op::FusedAttention op;
    op.how.row_tile = every(Choice::row_tile, 3) ? 64 : 4;
    op.how.key_tile = every(Choice::key_tile, 5) ? 64 : 3;
    op.how.causal = every(Choice::hides, 3);
    op.how.scale = 0.3;
    op.how.scores = format(every(Choice::scores, 3) ? "bf16" : "fp32");
    op.p = format(in_e4m3 ? "e4m3" : f);
    op.sums = format(every(Choice::sums, 5) ? "fp16" : "fp32");
    op.o = format(every(Choice::o, 4) ? "bf16" : "fp32");
    op.offset = in_e4m3 ? 8 : 0;
    op.shift = every(Choice::shift, 3) ? 2 : 0;
    op.sums_rounded = every(Choice::rounds, 3);
    op.how.by_steps = every(Choice::steps, 5);
    op.how.steps = format(f);
    return op;
}

/// The shape of a mask, for every second case that is not causal: one of those that masks can have; else empty.
Shape mask_shape(std::size_t number, Shape scores) {
    if (chosen(number, Choice::hides, 3) != 1) return {};
    const std::uint32_t which = chosen(number, Choice::mask, 6);
    if (which > 1) scores[1] = 1; // else heads have masks of their own
    if (which == 3) scores[0] = 1;
    if (which == 4) scores[2] = 1;
    if (which == 5) scores[3] = 1;
    return scores;
}

} // namespace

void attention_cases(Cases& cases) {
    std::size_t number = 0;
    for (const std::string_view f : formats_of_tensors)
        for (const char* sums : {"fp32", "bf16", "exact", "hopper-wgmma-bf16", "blackwell-fp8", "ampere-tf32"})
            for (const Fill fill : {Fill::ordinary, Fill::finite, Fill::edges}) {
                ++number;
                const Shape q{2, 4, 11, 5}, k{2, 2, 11, 5}, rows{2, 4, 11}, scores{2, 4, 11, 11};
                const bool as_tf32 = f == "fp32" && number % 2 == 0;
                const auto product = [&](const FormatSpec& x) {
                    const FormatSpec read = format("tf32"), other = format(f);
                    const Accumulator acc = accumulator(sums);
                    op::MatmulArithmetic how;
                    if (as_tf32) how.operands = read;
                    if (acc.takes(as_tf32 ? read : x) && acc.takes(as_tf32 ? read : other)) how.accumulate = acc;
                    return how;
                };
                const Shape mask = mask_shape(number, scores);
                const std::string with = mask.empty() ? "" : fmt::format(" mask {}", fmt::join(mask, "x"));
                OpCaseBuilder b(fmt::format("fused_attention {} {}{}", sums, f, with));
                op::FusedAttention op = attention_of(number, f);
                op.how.s_product = product(format(f));
                op.o_product = product(op.p);
                op.q = b.tensor(q, f, fill);
                op.k = b.tensor(k, f, fill);
                op.v = b.tensor(k, f, fill);
                if (!mask.empty()) op.mask = b.tensor(mask, "fp32", Fill::mask);
                op.out = b.tensor(q, f);
                op.lse = b.tensor(rows, "fp32");
                cases.push_back(b.build(op));
                OpCaseBuilder g(fmt::format("fused_attention_backward {} {}{}", sums, f, with));
                op::FusedAttentionBackward back;
                back.how = op.how;
                back.ds = format(chosen(number, Choice::ds, 4) == 0 ? "e5m2" : f);
                back.dp_product = product(format(f));
                back.dv_product = back.dk_product = back.dq_product = product(back.ds);
                back.q = g.tensor(q, f, fill);
                back.k = g.tensor(k, f, fill);
                back.v = g.tensor(k, f, fill);
                back.out = g.tensor(q, f, fill);
                back.lse = g.tensor(rows, "fp32", fill);
                back.grad_out = g.tensor(q, f, fill);
                if (!mask.empty()) back.mask = g.tensor(mask, "fp32", Fill::mask);
                const std::uint32_t left_out = chosen(number, Choice::grads, 3);
                if (left_out != 1) back.grad_q = g.tensor(q, f);
                if (left_out != 2) back.grad_k = g.tensor(k, f);
                back.grad_v = g.tensor(k, f);
                cases.push_back(g.build(back));
            }
}

} // namespace amp::crosscheck_tool
