// The block operations of IEEE P3109's interim report v4.0, sections 5.1 to 5.4, on arrays.
#include <ampscope/tools/python/bind.h>

#include <ampscope/sim/analysis/conformance/operations.h>

#include <fmt/format.h>
#include <nanobind/stl/tuple.h>

#include <algorithm>

namespace amp::python {

namespace {

using Described = std::tuple<FormatSpec, float, FormatSpec, Array<float>>; // scale's format, scale, format, elements

/// A block of values, as codes.
struct CodedBlock {
    p3109::Value scale;
    FormatSpec format;
    std::vector<std::uint32_t> codes;

    explicit CodedBlock(const Described& d)
        : scale{std::get<0>(d), encode(std::get<0>(d), std::get<1>(d))}, format(std::get<2>(d)) {
        for (const float x : span_of(std::get<3>(d))) codes.push_back(encode(format, x));
    }
    [[nodiscard]] p3109::Block view() const { return {scale, format, codes}; }
};

std::vector<CodedBlock> coded(const std::vector<Described>& blocks) {
    std::vector<CodedBlock> all(blocks.begin(), blocks.end());
    for (const CodedBlock& b : all)
        if (b.codes.size() != all.front().codes.size())
            throw std::invalid_argument(fmt::format("blocks of {} and {} elements: expected the same size",
                                                    all.front().codes.size(), b.codes.size()));
    return all;
}

/// How element i is projected.
p3109::Projection projection(const FormatSpec& to, const BatchOptions& o, std::size_t i) {
    const bool draws = o.policy.rounding == Rounding::stochastic;
    return {to, o.policy, draws ? o.key.word(o.first_index + i, o.policy.random_bits) : 0};
}

/// The scalar operation of that name that gives data.
conformance::OnData operation_of(const std::string& name, std::size_t operands) {
    if (name == "Convert" && operands == 1)
        return [](const Unpacked& x, const Unpacked&, const Unpacked&) { return x; };
    const auto rows = conformance::operations();
    const auto row = std::ranges::find(rows, name, &conformance::Operation::name);
    if (row == rows.end() || !std::holds_alternative<conformance::OnData>(row->definition))
        throw std::invalid_argument("block operation " + name +
                                    ": expected Convert, or an operation of the report that gives a number: Add ...");
    if (row->operands != operands)
        throw std::invalid_argument(fmt::format("{}: expected {} blocks, got {}", name, row->operands, operands));
    return std::get<conformance::OnData>(row->definition);
}

/// Section 5.4: elements of a block with that scale.
Result<float> blocks_operated(const std::string& name, const std::vector<Described>& described,
                              const FormatSpec& scale_format, float scale, const FormatSpec& to,
                              const BatchOptions& o) {
    const conformance::OnData operation = operation_of(name, described.size());
    const std::vector<CodedBlock> blocks = coded(described);
    const p3109::Value s{scale_format, encode(scale_format, scale)};
    return filled<float>({blocks.front().codes.size()}, [&](std::span<float> out) {
        for (std::size_t i = 0; i < out.size(); ++i) {
            std::array<Unpacked, 3> x{};
            for (std::size_t k = 0; k < blocks.size(); ++k) x[k] = p3109::decode(blocks[k].view(), i);
            out[i] = decode(to, p3109::project(s, operation(x[0], x[1], x[2]), projection(to, o, i)));
        }
    });
}

/// Section 5.2.1: numbers.
Result<float> from_block(const Described& described, const FormatSpec& to, const BatchOptions& o) {
    const CodedBlock block(described);
    return filled<float>({block.codes.size()}, [&](std::span<float> out) {
        for (std::size_t i = 0; i < out.size(); ++i)
            out[i] = decode(to, projection(to, o, i)(p3109::decode(block.view(), i)));
    });
}

/// Section 5.2.3: the scale of a block of these numbers.
float scale_for(const FormatSpec& from, const Array<float>& x, const FormatSpec& scale_format, const BatchOptions& o) {
    Unpacked largest = p3109::nan;
    for (const float number : span_of(x))
        largest = p3109::extremum(largest, p3109::abs(p3109::decode({from, encode(from, number)})), true,
                                  p3109::Prefer::finite);
    return decode(scale_format, projection(scale_format, o, 0)(largest));
}

/// Section 5.3: a sum, a product, or a sum of products, each exact and projected once.
float reduced(const std::string& name, const std::vector<Described>& described, const FormatSpec& to,
              const BatchOptions& o) {
    const std::vector<CodedBlock> blocks = coded(described);
    const std::size_t wanted = name == "DotProduct" ? 2 : 1;
    if (blocks.size() != wanted)
        throw std::invalid_argument(fmt::format("{}: expected {} blocks, got {}", name, wanted, blocks.size()));
    const p3109::Block x = blocks.front().view();
    return decode(to, projection(to, o, 0)(name == "ReduceAdd"        ? p3109::reduce_add(x)
                                           : name == "ReduceMultiply" ? p3109::reduce_multiply(x)
                                                                      : p3109::dot_product(x, blocks.back().view())));
}

} // namespace

void bind_p3109_blocks(nb::module_& m) {
    m.def("p3109_block_operate", &blocks_operated, nb::arg("operation"), nb::arg("blocks"), nb::arg("scale_format"),
          nb::arg("scale"), nb::arg("format"), nb::arg("policy"), InEnvironment());
    m.def("p3109_block_reduce", &reduced, nb::arg("operation"), nb::arg("blocks"), nb::arg("format"), nb::arg("policy"),
          InEnvironment());
    m.def("p3109_from_block", &from_block, nb::arg("block"), nb::arg("format"), nb::arg("policy"), InEnvironment());
    m.def("p3109_block_scale", &scale_for, nb::arg("from_format"), nb::arg("x").noconvert(), nb::arg("scale_format"),
          nb::arg("policy"), InEnvironment());
}

} // namespace amp::python
