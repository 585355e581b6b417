#include <ampscope/formats/codec.h>
#include <ampscope/tools/amp-crosscheck/op_case_builder.h>

namespace amp::crosscheck_tool {

namespace {

/// Formats and sizes of tiles that the case's number chooses, each of them now and then.
op::FusedAttention attention_of(std::size_t number, std::string_view f) {
    const auto every = [&](std::size_t n, std::string_view one, std::string_view other) {
        return format(number % n == 0 ? one : other);
    };
    op::FusedAttention op;
    op.how.row_tile = number % 3 == 0 ? 64 : 4;
    op.how.key_tile = number % 5 == 0 ? 64 : 3;
    op.how.causal = number % 2 == 0;
    op.how.scale = 0.3;
    op.how.scores = every(4, "bf16", "fp32");
    op.p = every(7, "e4m3", f);
    op.sums = every(6, "fp16", "fp32");
    op.o = every(5, "bf16", "fp32");
    op.offset = number % 7 == 0 ? 8 : 0;
    op.shift = number % 3 == 1 ? 2 : 0;
    op.sums_rounded = number % 4 == 1;
    op.how.by_steps = number % 6 == 5;
    op.how.steps = format(f);
    return op;
}

/// A mask for every second case that is not causal, in one of the shapes that masks can have.
TensorId mask_of(std::size_t number, OpCaseBuilder& b, const Shape& scores) {
    if (number % 4 != 1) return {};
    Shape shape = scores;
    const std::size_t which = number / 4 % 4;
    if (which != 0) shape[1] = 1;
    if (which == 1) shape[0] = 1;
    if (which == 2) shape[2] = 1;
    if (which == 3) shape[3] = 1;
    return b.tensor(shape, "fp32", Fill::mask);
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
                OpCaseBuilder b(fmt::format("fused_attention {} {}", sums, f));
                op::FusedAttention op = attention_of(number, f);
                op.how.s_product = product(format(f));
                op.o_product = product(op.p);
                op.q = b.tensor(q, f, fill);
                op.k = b.tensor(k, f, fill);
                op.v = b.tensor(k, f, fill);
                op.mask = mask_of(number, b, scores);
                op.out = b.tensor(q, f);
                op.lse = b.tensor(rows, "fp32");
                cases.push_back(b.build(op));
                OpCaseBuilder g(fmt::format("fused_attention_backward {} {}", sums, f));
                op::FusedAttentionBackward back;
                back.how = op.how;
                back.ds = number % 4 == 0 ? format("e5m2") : format(f);
                back.dp_product = product(format(f));
                back.dv_product = back.dk_product = back.dq_product = product(back.ds);
                back.q = g.tensor(q, f, fill);
                back.k = g.tensor(k, f, fill);
                back.v = g.tensor(k, f, fill);
                back.out = g.tensor(q, f, fill);
                back.lse = g.tensor(rows, "fp32", fill);
                back.grad_out = g.tensor(q, f, fill);
                back.mask = mask_of(number, g, scores);
                if (number % 3 != 1) back.grad_q = g.tensor(q, f);
                if (number % 3 != 2) back.grad_k = g.tensor(k, f);
                back.grad_v = g.tensor(k, f);
                cases.push_back(g.build(back));
            }
}

} // namespace amp::crosscheck_tool
